#!lua flags=no-writes
-- parts: time
-- ARGV: queue. Answers when the pending job that waits longest became due (C1).
local queue, oldest = ARGV[1], false
local function see(member)
  local due = sub(member, 6, 23)
  if due <= now_text and (not oldest or due < oldest) then oldest = due end
end
-- The first of each priority is its oldest; ':' follows '9', so the next priority begins there.
local ready = base .. 'ready:' .. queue
local first = call('ZRANGE', ready, 0, 0)[1]
while first do
  see(first)
  first = call('ZRANGEBYLEX', ready, '(' .. sub(first, 1, 5) .. ':', '+', 'LIMIT', 0, 1)[1]
end
for _, member in ipairs(call('ZRANGE', base .. 'scheduled:' .. queue, 0, 0)) do see(member) end
for _, member in ipairs(call('ZRANGEBYSCORE', base .. 'reserved:' .. queue, '-inf', now)) do see(member) end
return oldest
