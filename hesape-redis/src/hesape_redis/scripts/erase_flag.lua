#!lua flags=allow-oom
-- parts:
-- ARGV: key.
redis.call('DEL', KEYS[1] .. 'entry:' .. ARGV[1])
