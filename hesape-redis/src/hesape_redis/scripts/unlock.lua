#!lua flags=allow-oom
-- parts: time entry
-- ARGV: key, owner. Answers whether the owner held it.
if live(call('GET', entry_key(ARGV[1]))) ~= ARGV[2] then return 0 end
return call('DEL', entry_key(ARGV[1]))
