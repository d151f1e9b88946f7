#!lua flags=allow-oom
-- parts: time many state
-- ARGV: worker, ttl, lease, then the ids that are left alone. Answers the paused queues (L9).
local worker, lease, spared = ARGV[1], tonumber(ARGV[3]), {}
for i = 4, #ARGV do spared[ARGV[i]] = true end
call('HSET', base .. 'workers', worker, now_text .. pad(now + ARGV[2]))
local soon, until_text = pad(now + math.floor(lease / 2)), pad(now + lease)
local ids, members = {}, {}
for _, entry in ipairs(call('ZRANGE', base .. 'held:' .. worker, 0, -1)) do
  local id = sub(entry, 56, 91)
  if not spared[id] then ids[#ids + 1], members[#members + 1] = id, sub(entry, 17) end
end
for n, state in ipairs(values(base .. 'state', ids)) do
  local ends = state and sub(state, 18, 35)
  if ends and ends > now_text and ends < soon then
    local _, tail = parts_of(state)
    call('HSET', base .. 'state', ids[n], sub(state, 1, 17) .. until_text .. sub(state, 36))
    call('ZADD', base .. 'reserved:' .. (places_of(tail)), 'XX', until_text, members[n])
  end
end
return call('SMEMBERS', base .. 'paused')
