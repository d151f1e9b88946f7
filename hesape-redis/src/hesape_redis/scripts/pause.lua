#!lua flags=allow-oom
-- parts:
-- ARGV: queue.
redis.call('SADD', KEYS[1] .. 'paused', ARGV[1])
