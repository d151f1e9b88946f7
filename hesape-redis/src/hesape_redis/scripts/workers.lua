#!lua flags=no-writes
-- parts: time many
-- Answers, for each worker: its name, its last beat, how many jobs it holds, when the oldest of them was claimed.
local rows, workers = {}, call('HGETALL', base .. 'workers')
for i = 1, #workers, 2 do
  local ids, since = {}, ''
  for n, entry in ipairs(call('ZRANGE', base .. 'held:' .. workers[i], 0, -1)) do ids[n] = sub(entry, 56, 91) end
  for _, state in ipairs(values(base .. 'state', ids)) do
    local claimed = state and sub(state, 36, 53)
    if claimed and (since == '' or claimed < since) then since = claimed end
  end
  rows[#rows + 1] = {workers[i], sub(workers[i + 1], 1, 18), #ids, since}
end
return rows
