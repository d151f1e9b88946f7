#!lua
-- parts: time many member entry
-- No allow-oom: a full store refuses a push before its first write (E3).
-- ARGV, for each job: meta, queue, tenant \n name \n queue \n envelope.
-- meta: priority + 32768 (5), id (36), d delay(18) or a absolute(18), and "ttl key" when it has a unique key.
-- Answers nothing when all is stored; else what is stored already, as position and record, and the position of the first
-- whose unique key is held, or -1. Then nothing was written.
local jobs, taken, unique = base .. 'jobs', {}, {}
local known, known_size = {}, 0
for i = 1, #ARGV, 3 do
  local id = sub(ARGV[i], 6, 41)
  if call('HEXISTS', jobs, id) == 1 then
    local job = call('HGET', jobs, id)
    known[#known + 1], known[#known + 2] = (i - 1) / 3, job
    known_size = known_size + #job
    -- The caller drops those that are the same and asks again: no answer is larger than a bulk may be.
    if known_size > 16777216 then return {known, -1} end
  elseif #ARGV[i] > 60 then
    local ttl, key = string.match(ARGV[i], '^(%d+) (.*)$', 61)
    if taken[key] or live(call('GET', entry_key(key))) then return {known, (i - 1) / 3} end
    taken[key] = true
    unique[#unique + 1] = {key, id, pad(now + ttl)}
  end
end
if #known > 0 then return {known, -1} end

local first = call('INCRBY', base .. 'sequence', #ARGV / 3) - #ARGV / 3
local rows, ready, scheduled = {}, {}, {}
for i = 1, #ARGV, 3 do
  local meta, queue = ARGV[i], ARGV[i + 1]
  local id, kind, moment = sub(meta, 6, 41), string.byte(meta, 42), sub(meta, 43, 60)
  local due = now_text
  if kind == 97 then
    if moment > now_text then due = moment end
  elseif moment ~= forever then
    due = pad(now + moment)
  end
  local member = sub(meta, 1, 5) .. due .. sequence(first + (i - 1) / 3) .. id
  rows[#rows + 1], rows[#rows + 2] = id, now_text .. '\n' .. ARGV[i + 2]
  local lines = due == now_text and ready or scheduled
  local line = lines[queue]
  if not line then
    line = {}
    lines[queue] = line
  end
  line[#line + 1], line[#line + 2] = due == now_text and 0 or due, member
end
many('HSET', jobs, rows)
for _, held in ipairs(unique) do keep(held[1], held[2], held[3]) end
for queue, line in pairs(scheduled) do
  many('ZADD', base .. 'scheduled:' .. queue, line)
  call('SADD', base .. 'queues', queue)
  if not ready[queue] then call('PUBLISH', base .. 'wake:' .. queue, 'later') end
end
for queue, line in pairs(ready) do
  many('ZADD', base .. 'ready:' .. queue, line)
  call('SADD', base .. 'queues', queue)
  call('PUBLISH', base .. 'wake:' .. queue, 'now')
end
