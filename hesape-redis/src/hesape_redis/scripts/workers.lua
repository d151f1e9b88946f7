#!lua flags=no-writes
-- parts: time many state claim
-- Answers, for each worker: its name, its last beat, how many jobs it holds, when the oldest of them was claimed.
local rows, workers = {}, call('HGETALL', base .. 'workers')
for i = 1, #workers, 2 do
  local held, since = 0, ''
  for _, token in ipairs(call('SMEMBERS', base .. 'held:' .. workers[i])) do
    local _, states = reserved_by(token)
    held = held + #states
    for _, state in ipairs(states) do
      if since == '' or sub(state, 36, 53) < since then since = sub(state, 36, 53) end
    end
  end
  rows[#rows + 1] = {workers[i], sub(workers[i + 1], 1, 18), held, since}
end
return rows
