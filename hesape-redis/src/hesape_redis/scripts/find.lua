#!lua flags=no-writes
-- parts: time many state find
-- ARGV: whether for a tenant, the tenant, the id. Answers the job as `failed` does, or what is at fault.
local ids, states = find_failed(3)
if not ids then return states end
return {'found', ids[1], call('HGET', base .. 'jobs', ids[1]), states[1], call('HGET', base .. 'errors', ids[1])}
