#!lua flags=allow-oom
-- parts: time many member state leave delete free
-- ARGV: n, lease, token, worker, again, how many queues, the queues, each once, then id and token of what is done.
-- Answers: now; the positions in `done` of the lost; the paused queues; the next due time; the leases' end, or a list
-- of ends; member and record of each job; position and text of each last error.
local wanted, lease, token, worker = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local queues = {unpack(ARGV, 7, 6 + ARGV[6])}
local lost = delete(7 + #queues, ARGV[5] == '1')

local paused, is_paused = call('SMEMBERS', base .. 'paused'), {}
for _, queue in ipairs(paused) do is_paused[queue] = true end

local held = base .. 'held:' .. worker
local members, ids, ends = {}, {}, pad(now + lease)

-- What this very claim was given before: its reply was lost (L4). A member begins with a digit, and ':' follows '9'.
local again = call('ZRANGEBYLEX', held, '[' .. token, '(' .. token .. ':')
if #again > 0 then
  local place, order = {}, {}
  for n, queue in ipairs(queues) do place[queue] = n end
  for _, entry in ipairs(again) do
    local state = call('HGET', base .. 'state', sub(entry, 56, 91))
    if state then
      local _, tail = parts_of(state)
      order[#order + 1] = {place[(places_of(tail))] or 0, sub(entry, 17), sub(state, 18, 35)}
    end
  end
  table.sort(order, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return a[2] < b[2]
  end)
  ends = {}
  for n, job in ipairs(order) do members[n], ids[n], ends[n] = job[2], id_of(job[2]), job[3] end
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
  local states, entries = {}, {}
  for _, queue in ipairs(queues) do
    if wanted > #members and not is_paused[queue] then
      local line, tail = {}, '\n' .. queue .. '\n' .. worker
      local found = call('ZPOPMIN', base .. 'ready:' .. queue, wanted - #members)
      for i = 1, #found, 2 do
        local member = found[i]
        if #member == 75 then
          member = member .. '1.0.0..'
        else
          local attempts, lapses, exceptions, retried, erred = counts_of(member)
          member = recount(member, attempts + 1, lapses, exceptions, retried, erred)
        end
        local id, n = id_of(member), #members + 1
        members[n], ids[n] = member, id
        states[2 * n - 1], states[2 * n] = id, head .. member .. tail
        entries[2 * n - 1], entries[2 * n] = 0, token .. member
        line[i], line[i + 1] = ends, member
      end
      many('ZADD', base .. 'reserved:' .. queue, line)
    end
  end
  many('HSET', base .. 'state', states)
  many('ZADD', held, entries)
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
