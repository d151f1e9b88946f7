-- Delete the deliveries of ARGV from first on, pairs of id and token; the positions of those that weren't current.
local function delete(first, again)
  local ids, gone, erred, lost = {}, {}, {}, {}
  for i = first, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
  local states = values(base .. 'state', ids)
  for n, id in ipairs(ids) do
    local state = states[n]
    if current(state, ARGV[first + 2 * n - 1]) then
      gone[#gone + 1] = id
      if string.byte(leave(state), -1) == 49 then erred[#erred + 1] = id end
    elseif not again or call('HEXISTS', base .. 'jobs', id) == 1 then
      lost[#lost + 1] = n - 1
    end
  end
  many('HDEL', base .. 'state', gone)
  many('HDEL', base .. 'jobs', gone)
  many('HDEL', base .. 'errors', erred)
  left(true)
  return lost
end
