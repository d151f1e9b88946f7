#!lua flags=no-writes
-- parts: time entry
-- ARGV: key. Answers the value of a flag that is set.
return live(call('GET', entry_key(ARGV[1]))) or false
