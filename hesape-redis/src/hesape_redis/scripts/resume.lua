#!lua flags=allow-oom
-- parts:
-- ARGV: queue.
redis.call('SREM', KEYS[1] .. 'paused', ARGV[1])
redis.call('PUBLISH', KEYS[1] .. 'wake:' .. ARGV[1], 'now')
