#!lua flags=no-writes
-- parts:
-- The queues that have a job or are paused.
return redis.call('SUNION', KEYS[1] .. 'queues', KEYS[1] .. 'paused')
