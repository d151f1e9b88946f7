#!lua flags=allow-oom
-- parts: time many state claim
-- ARGV: worker, ttl, lease, then the ids that are left alone. Answers the paused queues (L9).
local worker, lease, spared = ARGV[1], tonumber(ARGV[3]), {}
for i = 4, #ARGV do spared[ARGV[i]] = true end
call('HSET', base .. 'workers', worker, now_text .. pad(now + ARGV[2]))
local soon, until_text = pad(now + math.floor(lease / 2)), pad(now + lease)
for _, token in ipairs(call('SMEMBERS', base .. 'held:' .. worker)) do
  local ids, states = reserved_by(token)
  for n, state in ipairs(states) do
    local ends = sub(state, 18, 35)
    if not spared[ids[n]] and ends > now_text and ends < soon then
      local member, queue = parts_of(state)
      call('HSET', base .. 'state', ids[n], sub(state, 1, 17) .. until_text .. sub(state, 36))
      call('ZADD', base .. 'reserved:' .. queue, 'XX', until_text, member)
    end
  end
end
return call('SMEMBERS', base .. 'paused')
