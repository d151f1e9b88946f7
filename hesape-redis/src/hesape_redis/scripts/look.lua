#!lua flags=no-writes
-- parts: time
-- ARGV: queues. Answers how long until a claim from them may find something: 0 for now, -1 for no time known (W1).
local first = false
for _, queue in ipairs(ARGV) do
  if call('SISMEMBER', base .. 'paused', queue) == 0 then
    if call('EXISTS', base .. 'ready:' .. queue) == 1 then return 0 end
    for _, line in ipairs({'scheduled:', 'reserved:'}) do
      local score = tonumber(call('ZRANGE', base .. line .. queue, 0, 0, 'WITHSCORES')[2])
      if score and (not first or score < first) then first = score end
    end
  end
end
return first and string.format('%.0f', math.max(0, first - now)) or -1
