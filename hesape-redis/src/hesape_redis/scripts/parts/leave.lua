-- Take reserved jobs off their lines, and their deliveries out of their claims.
local leaving, settled = {}, {}
local function leave(state)
  local member, queue = parts_of(state)
  local line = leaving[queue]
  if not line then
    line = {}
    leaving[queue] = line
  end
  line[#line + 1] = member
  local token = sub(state, 2, 17)
  settled[token] = (settled[token] or 0) + 1
  return member, queue
end
local function left()
  for queue, members in pairs(leaving) do many('ZREM', base .. 'reserved:' .. queue, members) end
  for token, count in pairs(settled) do close_some(token, count) end
end
