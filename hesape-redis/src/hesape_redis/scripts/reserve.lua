#!lua flags=allow-oom
-- parts: time many member state claim leave delete free
-- ARGV: n, lease, token, worker, again, how many queues, the queues, each once, then id and token of what is done.
-- Answers: now; the positions in `done` of the lost; the paused queues; the next due time; the leases' end, or a list
-- of ends; member and record of each job; position and text of each last error.
local wanted, lease, token, worker = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local queues = {unpack(ARGV, 7, 6 + ARGV[6])}
local lost = delete(7 + #queues, ARGV[5] == '1')

local paused, is_paused = call('SMEMBERS', base .. 'paused'), {}
for _, queue in ipairs(paused) do is_paused[queue] = true end

-- What this very claim was given before: its reply was lost (L4).
local ids, states = reserved_by(token)
local members, ends = {}, pad(now + lease)
if #ids > 0 then
  ends = {}
  for n, state in ipairs(states) do members[n], ends[n] = (parts_of(state)), sub(state, 18, 35) end
else
  -- Promote, 1,000 at a time, until less is found: nothing that is due may wait behind it (O1).
  for _, queue in ipairs(queues) do
    repeat
      local due = call('ZRANGEBYSCORE', base .. 'scheduled:' .. queue, '-inf', now, 'LIMIT', 0, 1000)
      if #due > 0 then
        local line = {}
        for n, member in ipairs(due) do line[2 * n - 1], line[2 * n] = 0, member end
        call('ZADD', base .. 'ready:' .. queue, unpack(line))
        call('ZREMRANGEBYRANK', base .. 'scheduled:' .. queue, 0, #due - 1)
      end
    until #due < 1000
    repeat
      local over = call('ZRANGEBYSCORE', base .. 'reserved:' .. queue, '-inf', now, 'LIMIT', 0, 1000)
      if #over > 0 then free(queue, over, 0, 1) end
    until #over < 1000
  end
  local head = 'r' .. token .. ends .. now_text
  for _, queue in ipairs(queues) do
    if wanted > #members and not is_paused[queue] then
      local line, tail = {}, '\n' .. queue
      -- A range and its removal by rank cost two thirds of ZPOPMIN.
      local found = call('ZRANGE', base .. 'ready:' .. queue, 0, wanted - #members - 1)
      if #found > 0 then call('ZREMRANGEBYRANK', base .. 'ready:' .. queue, 0, #found - 1) end
      for i, member in ipairs(found) do
        if #member == 75 then
          member = member .. '1.0.0..'
        else
          local attempts, lapses, exceptions, retried, erred = counts_of(member)
          member = recount(member, attempts + 1, lapses, exceptions, retried, erred)
        end
        local id, n = id_of(member), #members + 1
        members[n], ids[n] = member, id
        states[2 * n - 1], states[2 * n] = id, head .. member .. tail
        line[2 * i - 1], line[2 * i] = ends, member
      end
      many('ZADD', base .. 'reserved:' .. queue, line)
    end
  end
  many('HSET', base .. 'state', states)
  if #ids > 0 then open_claim(token, worker, ids) end
end

local next_due = false
for _, queue in ipairs(queues) do
  if not is_paused[queue] then
    local first = call('ZRANGE', base .. 'scheduled:' .. queue, 0, 0)[1]
    local due = first and sub(first, 6, 23)
    if due and (not next_due or due < next_due) then next_due = due end
  end
end

local rows, errors = {}, {}
for n, job in ipairs(values(base .. 'jobs', ids)) do
  rows[2 * n - 1], rows[2 * n] = members[n], job
  if string.byte(members[n], -1) == 49 then
    errors[#errors + 1], errors[#errors + 2] = n - 1, call('HGET', base .. 'errors', ids[n])
  end
end
return {now_text, lost, paused, next_due, ends, rows, errors}
