-- A claim is known as long as one of its deliveries isn't settled: `claims` has its worker and all of its ids in order,
-- `open` how many are left, `held:WORKER` the claims of a worker. One entry a claim instead of one a job: at a batch of
-- 50 a sorted set of what each worker holds cost as much as all the rest.
local function open_claim(token, worker, ids)
  call('HSET', base .. 'claims', token, worker .. '\n' .. table.concat(ids))
  call('HSET', base .. 'open', token, #ids)
  if worker ~= '' then call('SADD', base .. 'held:' .. worker, token) end
end
local function close_some(token, settled)
  if call('HINCRBY', base .. 'open', token, -settled) > 0 then return end
  local worker = string.match(call('HGET', base .. 'claims', token) or '', '^[^\n]*')
  call('HDEL', base .. 'claims', token)
  call('HDEL', base .. 'open', token)
  if worker ~= '' then call('SREM', base .. 'held:' .. worker, token) end
end
-- The ids and states of the deliveries of a claim that are still reserved.
local function reserved_by(token)
  local ids, states, all = {}, {}, {}
  local claim = call('HGET', base .. 'claims', token)
  if not claim then return ids, states end
  for from = string.find(claim, '\n', 1, true) + 1, #claim, 36 do all[#all + 1] = sub(claim, from, from + 35) end
  for n, state in ipairs(values(base .. 'state', all)) do
    if bears(state, 'r', token) then ids[#ids + 1], states[#states + 1] = all[n], state end
  end
  return ids, states
end
