-- Forget a worker and free what it holds; how many jobs.
local function retire(worker)
  local queues, found = {}, call('ZRANGE', base .. 'held:' .. worker, 0, -1)
  call('HDEL', base .. 'workers', worker)
  local ids = {}
  for n, entry in ipairs(found) do ids[n] = sub(entry, 56, 91) end
  for n, state in ipairs(values(base .. 'state', ids)) do
    if state then
      local _, tail = parts_of(state)
      local queue = places_of(tail)
      queues[queue] = queues[queue] or {}
      table.insert(queues[queue], sub(found[n], 17))
    end
  end
  for queue, members in pairs(queues) do free(queue, members, 0, 1) end
  return #found
end
