#!lua flags=no-writes
-- parts: time
-- ARGV: queue. Answers pending, delayed, reserved, failed at this moment (C1).
local queue = ARGV[1]
local due = call('ZCOUNT', base .. 'scheduled:' .. queue, '-inf', now)
local over = call('ZCOUNT', base .. 'reserved:' .. queue, '-inf', now)
return {
  call('ZCARD', base .. 'ready:' .. queue) + due + over,
  call('ZCARD', base .. 'scheduled:' .. queue) - due,
  call('ZCARD', base .. 'reserved:' .. queue) - over,
  call('ZCARD', base .. 'failed:queue:' .. queue),
}
