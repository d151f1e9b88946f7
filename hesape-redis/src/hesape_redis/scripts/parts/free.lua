-- Make reserved jobs of one queue ready again in their old place, their deliveries over (L2, L3, L8).
local function free(queue, members, attempt, lapse)
  local ids, line, over = {}, {}, {}
  for n, member in ipairs(members) do
    ids[n] = id_of(member)
    local attempts, lapses, exceptions, retried, erred = counts_of(member)
    line[2 * n - 1] = 0
    line[2 * n] = recount(member, attempts - attempt, lapses + lapse, exceptions, retried, erred)
  end
  for _, state in ipairs(values(base .. 'state', ids)) do
    if state then
      local token = sub(state, 2, 17)
      over[token] = (over[token] or 0) + 1
    end
  end
  for token, count in pairs(over) do close_some(token, count) end
  many('ZREM', base .. 'reserved:' .. queue, members)
  many('HDEL', base .. 'state', ids)
  many('ZADD', base .. 'ready:' .. queue, line)
  call('PUBLISH', base .. 'wake:' .. queue, 'now')
end
