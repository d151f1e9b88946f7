#!lua flags=allow-oom
-- parts: time many state failed find
-- ARGV: whether for a tenant, the tenant, the ids. Answers how many were removed, or what is at fault (F4).
local ids, states = find_failed(3)
if not ids then return states end
remove_failed(ids, states)
return #ids
