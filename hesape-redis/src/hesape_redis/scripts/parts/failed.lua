-- The failed list, by failed(18) id, whole and by queue, by tenant and by both, so that a page costs its length (F1).
local function park_or_unpark(command, entries, queue, tenant)
  if command == 'ZADD' then
    local pairs_ = {}
    for n, entry in ipairs(entries) do pairs_[2 * n - 1], pairs_[2 * n] = 0, entry end
    entries = pairs_
  end
  many(command, base .. 'failed', entries)
  many(command, base .. 'failed:queue:' .. queue, entries)
  many(command, base .. 'failed:tenant:' .. tenant, entries)
  many(command, base .. 'failed:both:' .. tenant .. ':' .. queue, entries)
end
local function places_of(tail)
  local ends = string.find(tail, '\n', 1, true)
  return sub(tail, 1, ends - 1), sub(tail, ends + 1)
end
local function unpark(ids, states)
  local groups = {}
  for n, id in ipairs(ids) do
    local _, tail = parts_of(states[n])
    groups[tail] = groups[tail] or {}
    table.insert(groups[tail], sub(states[n], 18, 35) .. id)
  end
  for tail, entries in pairs(groups) do
    local queue, tenant = places_of(tail)
    park_or_unpark('ZREM', entries, queue, tenant)
  end
  return groups
end
local function remove_failed(ids, states)
  local groups = unpark(ids, states)
  many('HDEL', base .. 'state', ids)
  many('HDEL', base .. 'jobs', ids)
  many('HDEL', base .. 'errors', ids)
  for tail in pairs(groups) do tidy((places_of(tail))) end
end
