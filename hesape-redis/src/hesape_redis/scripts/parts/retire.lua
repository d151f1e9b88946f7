-- Forget a worker and free what it holds; how many jobs.
local function retire(worker)
  local queues, freed = {}, 0
  call('HDEL', base .. 'workers', worker)
  for _, token in ipairs(call('SMEMBERS', base .. 'held:' .. worker)) do
    local _, states = reserved_by(token)
    for _, state in ipairs(states) do
      local member, queue = parts_of(state)
      queues[queue] = queues[queue] or {}
      table.insert(queues[queue], member)
    end
    freed = freed + #states
  end
  for queue, members in pairs(queues) do free(queue, members, 0, 1) end
  return freed
end
