#!lua flags=allow-oom
-- parts: time many member state claim leave
-- ARGV: id, token, delay, spent, exceptions, and the error if there is one.
local id, token, delay = ARGV[1], ARGV[2], tonumber(ARGV[3])
local state = call('HGET', base .. 'state', id)
if not current(state, token) then return bears(state, 'w', token) and 1 or 0 end

local member, queue = leave(state)
local attempts, _, _, retried = counts_of(member)
if ARGV[4] == '0' then attempts = attempts - 1 end
local due = delay > 0 and pad(now + delay) or now_text
-- Behind its equals, by a new sequence (O1).
member = sub(member, 1, 5) .. due .. sequence(call('INCR', base .. 'sequence') - 1) .. id
member = recount(member, attempts, 0, ARGV[5], retried, ARGV[6] and '1' or '')
left()
call('HSET', base .. 'state', id, 'w' .. token)
if ARGV[6] then call('HSET', base .. 'errors', id, ARGV[6]) else call('HDEL', base .. 'errors', id) end
if due == now_text then
  call('ZADD', base .. 'ready:' .. queue, 0, member)
  call('PUBLISH', base .. 'wake:' .. queue, 'now')
else
  call('ZADD', base .. 'scheduled:' .. queue, due, member)
  call('PUBLISH', base .. 'wake:' .. queue, 'later')
end
return 1
