-- The state of a job that isn't merely waiting:
--   r token(16) lease's end(18) claimed(18) member \n queue               reserved
--   w token(16)                                                           waiting after a release under this token (L4)
--   f token(16) failed(18) zeros(18) member \n queue \n tenant            failed
local function bears(state, kind, token)
  return state and sub(state, 1, 1) == kind and sub(state, 2, 17) == token
end
local function current(state, token)
  return bears(state, 'r', token) and sub(state, 18, 35) > now_text
end
local function parts_of(state)
  local ends = string.find(state, '\n', 129, true)
  return sub(state, 54, ends - 1), sub(state, ends + 1)
end
-- A queue whose last job is gone is forgotten.
local function tidy(queue)
  if call('EXISTS', base .. 'ready:' .. queue, base .. 'scheduled:' .. queue, base .. 'reserved:' .. queue,
      base .. 'failed:queue:' .. queue) == 0 then
    call('SREM', base .. 'queues', queue)
  end
end
