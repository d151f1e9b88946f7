#!lua flags=allow-oom
-- parts: time many state claim leave delete
-- ARGV: again, then id and token of each delivery. Answers the positions of those that weren't current.
return delete(2, ARGV[1] == '1')
