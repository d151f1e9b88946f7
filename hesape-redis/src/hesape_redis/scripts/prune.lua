#!lua flags=allow-oom
-- parts: time many state failed
-- ARGV: how old at least, in microseconds, or nothing for all. Answers how many failed jobs were removed (F4).
local last, removed = ARGV[1] and '(' .. pad(math.max(0, now - ARGV[1])) or '+', 0
repeat
  local ids = {}
  for n, entry in ipairs(call('ZRANGEBYLEX', base .. 'failed', '-', last, 'LIMIT', 0, 1000)) do
    ids[n] = sub(entry, 19)
  end
  remove_failed(ids, values(base .. 'state', ids))
  removed = removed + #ids
until #ids < 1000
return removed
