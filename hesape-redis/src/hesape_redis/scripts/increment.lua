#!lua flags=allow-oom
-- parts: time entry
-- ARGV: key, by, ttl. Answers the counter's value and its end, which the first increment sets.
local value, ends = live(call('GET', entry_key(ARGV[1])))
if not value or ends == forever then ends = pad(now + ARGV[3]) end
value = string.format('%.0f', (value or 0) + ARGV[2])
if ARGV[2] ~= '0' then keep(ARGV[1], value, ends) end
return {value, ends}
