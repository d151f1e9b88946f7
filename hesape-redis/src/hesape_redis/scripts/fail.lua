#!lua flags=allow-oom
-- parts: time many member state claim leave failed find
-- ARGV: id, token, exceptions, and the error if there is one.
local id, token = ARGV[1], ARGV[2]
local state = call('HGET', base .. 'state', id)
if not current(state, token) then return bears(state, 'f', token) and 1 or 0 end

local member, queue = leave(state)
local attempts, _, _, retried = counts_of(member)
member = recount(member, attempts, 0, ARGV[3], retried, ARGV[4] and '1' or '')
local tenant = tenant_of(call('HGET', base .. 'jobs', id) or '') or ''
left()
call('HSET', base .. 'state', id,
  'f' .. token .. now_text .. string.rep('0', 18) .. member .. '\n' .. queue .. '\n' .. tenant)
if ARGV[4] then call('HSET', base .. 'errors', id, ARGV[4]) else call('HDEL', base .. 'errors', id) end
park_or_unpark('ZADD', {now_text .. id}, queue, tenant)
return 1
