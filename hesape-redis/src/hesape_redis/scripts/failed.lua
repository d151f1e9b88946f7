#!lua flags=no-writes
-- parts: time many
-- ARGV: the list's name, limit, and the cursor failed(18) id, if any. Answers id, record, state, error of each (F1).
local last = ARGV[3] and '(' .. ARGV[3] or '+'
local ids, rows = {}, {}
for n, entry in ipairs(call('ZREVRANGEBYLEX', base .. ARGV[1], last, '-', 'LIMIT', 0, ARGV[2])) do
  ids[n] = sub(entry, 19)
end
local jobs, states, errors = values(base .. 'jobs', ids), values(base .. 'state', ids), values(base .. 'errors', ids)
for n, id in ipairs(ids) do rows[n] = {id, jobs[n], states[n], errors[n]} end
return rows
