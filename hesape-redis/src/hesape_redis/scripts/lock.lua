#!lua flags=allow-oom
-- parts: time entry
-- ARGV: key, owner, ttl. Answers whether the owner holds it now (K1).
local owner = live(call('GET', entry_key(ARGV[1])))
if owner and owner ~= ARGV[2] then return 0 end
keep(ARGV[1], ARGV[2], pad(now + ARGV[3]))
return 1
