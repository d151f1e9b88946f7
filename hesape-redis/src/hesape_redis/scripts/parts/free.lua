-- Make reserved jobs of one queue ready again in their old place, their delivery over (L2, L3, L8).
local function free(queue, members, attempt, lapse)
  local ids, lines, held = {}, {}, {}
  for n, member in ipairs(members) do
    ids[n] = id_of(member)
    local attempts, lapses, exceptions, retried, erred = counts_of(member)
    lines[2 * n - 1] = 0
    lines[2 * n] = recount(member, attempts - attempt, lapses + lapse, exceptions, retried, erred)
  end
  for n, state in ipairs(values(base .. 'state', ids)) do
    if state then
      local _, tail = parts_of(state)
      local _, worker = places_of(tail)
      held[worker] = held[worker] or {}
      table.insert(held[worker], sub(state, 2, 17) .. members[n])
    end
  end
  for worker, entries in pairs(held) do many('ZREM', base .. 'held:' .. worker, entries) end
  many('ZREM', base .. 'reserved:' .. queue, members)
  many('HDEL', base .. 'state', ids)
  many('ZADD', base .. 'ready:' .. queue, lines)
  call('PUBLISH', base .. 'wake:' .. queue, 'now')
end
