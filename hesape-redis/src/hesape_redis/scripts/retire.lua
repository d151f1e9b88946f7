#!lua flags=allow-oom
-- parts: time many member state claim free retire
-- ARGV: worker. Answers how many jobs it held.
return retire(ARGV[1])
