-- The failed jobs of ARGV from first on, each once, for the tenant that ARGV[2] names when ARGV[1] is 1: their ids and
-- states, or the first that is at fault (F3).
local function tenant_of(job) return string.match(job, '^[^\n]*\n([^\n]*)\n') end
local function find_failed(first)
  local ids, states, seen = {}, {}, {}
  for i = first, #ARGV do
    local id = ARGV[i]
    local state, job = call('HGET', base .. 'state', id), call('HGET', base .. 'jobs', id)
    if not job or (ARGV[1] == '1' and tenant_of(job) ~= ARGV[2]) then return nil, {'missing', i - first} end
    if not state or sub(state, 1, 1) ~= 'f' then return nil, {'live', i - first} end
    if not seen[id] then
      seen[id] = true
      ids[#ids + 1], states[#states + 1] = id, state
    end
  end
  return ids, states
end
