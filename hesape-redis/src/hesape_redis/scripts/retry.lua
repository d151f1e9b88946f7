#!lua flags=allow-oom
-- parts: time many member state failed find
-- ARGV: whether for a tenant, the tenant, the ids. Nothing for all of them put back, due now (F2), or what is at fault.
local ids, states = find_failed(3)
if not ids then return states end
local queues = {}
local first = call('INCRBY', base .. 'sequence', #ids) - #ids
for n, id in ipairs(ids) do
  local member, tail = parts_of(states[n])
  local queue = places_of(tail)
  member = sub(member, 1, 5) .. now_text .. sequence(first + n - 1) .. id
  local line = queues[queue] or {}
  queues[queue] = line
  line[#line + 1], line[#line + 2] = 0, recount(member, 0, 0, 0, now_text, '')
end
unpark(ids, states)
many('HDEL', base .. 'state', ids)
many('HDEL', base .. 'errors', ids)
for queue, line in pairs(queues) do
  many('ZADD', base .. 'ready:' .. queue, line)
  call('PUBLISH', base .. 'wake:' .. queue, 'now')
end
