-- Delete the deliveries of ARGV from first on, pairs of id and token; the positions of those that weren't current.
local function delete(first, again)
  local ids, gone, erred, lost = {}, {}, {}, {}
  for i = first, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
  for n, state in ipairs(values(base .. 'state', ids)) do
    if current(state, ARGV[first + 2 * n - 1]) then
      gone[#gone + 1] = ids[n]
      if string.byte(leave(state), -1) == 49 then erred[#erred + 1] = ids[n] end
    elseif not again or call('HEXISTS', base .. 'jobs', ids[n]) == 1 then
      lost[#lost + 1] = n - 1
    end
  end
  many('HDEL', base .. 'state', gone)
  many('HDEL', base .. 'jobs', gone)
  many('HDEL', base .. 'errors', erred)
  left()
  for queue in pairs(leaving) do tidy(queue) end
  return lost
end
