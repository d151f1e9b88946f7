#!lua flags=allow-oom
-- parts: time many state
-- ARGV: lease, then id and token of each delivery. Answers the end of each lease, false for what isn't current (L5).
local lease, ends = tonumber(ARGV[1]), {}
local until_text = pad(now + lease)
for i = 2, #ARGV, 2 do
  local state = call('HGET', base .. 'state', ARGV[i])
  local n = i / 2
  ends[n] = false
  if current(state, ARGV[i + 1]) then
    ends[n] = sub(state, 18, 35)
    if lease > 0 and until_text > ends[n] then
      ends[n] = until_text
      local member, queue = parts_of(state)
      call('HSET', base .. 'state', ARGV[i], sub(state, 1, 17) .. until_text .. sub(state, 36))
      call('ZADD', base .. 'reserved:' .. queue, 'XX', until_text, member)
    end
  end
end
return ends
