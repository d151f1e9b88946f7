#!lua flags=allow-oom
-- parts: time many member state claim free
-- ARGV: id and token of each delivery that never started (L8).
local queues = {}
for i = 1, #ARGV, 2 do
  local state = call('HGET', base .. 'state', ARGV[i])
  if current(state, ARGV[i + 1]) then
    local member, queue = parts_of(state)
    queues[queue] = queues[queue] or {}
    queues[queue][member] = true
  end
end
for queue, found in pairs(queues) do
  local members = {}
  for member in pairs(found) do members[#members + 1] = member end
  free(queue, members, 1, 0)
end
