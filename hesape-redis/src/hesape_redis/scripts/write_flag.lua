#!lua flags=allow-oom
-- parts: time entry
-- ARGV: key, value, and the ttl if it has one.
keep(ARGV[1], ARGV[2], ARGV[3] and pad(now + ARGV[3]) or forever)
