-- Take reserved jobs off their line and out of their worker's hands, grouped by queue and worker.
local leaving = {}
local function leave(state)
  local member, tail = parts_of(state)
  local group = leaving[tail]
  if not group then
    group = {{}, {}}
    leaving[tail] = group
  end
  group[1][#group[1] + 1] = member
  group[2][#group[2] + 1] = sub(state, 2, 17) .. member
  return member, tail
end
local function left(forget_queues)
  for tail, group in pairs(leaving) do
    local queue, worker = places_of(tail)
    many('ZREM', base .. 'reserved:' .. queue, group[1])
    many('ZREM', base .. 'held:' .. worker, group[2])
    if forget_queues then tidy(queue) end
  end
end
