#!lua flags=allow-oom
-- parts: time many member state claim leave
-- ARGV: queue. Answers how many jobs were removed; failed ones stay (C2).
local queue, removed = ARGV[1], 0
for _, line in ipairs({'ready:', 'scheduled:', 'reserved:'}) do
  repeat
    local members, ids = call('ZRANGE', base .. line .. queue, 0, 999), {}
    for n, member in ipairs(members) do ids[n] = id_of(member) end
    if line == 'reserved:' then
      for _, state in ipairs(values(base .. 'state', ids)) do
        if state then leave(state) end
      end
    end
    many('HDEL', base .. 'jobs', ids)
    many('HDEL', base .. 'state', ids)
    many('HDEL', base .. 'errors', ids)
    if #ids > 0 then call('ZREMRANGEBYRANK', base .. line .. queue, 0, #ids - 1) end
    removed = removed + #ids
  until #ids < 1000
end
left()
tidy(queue)
return removed
