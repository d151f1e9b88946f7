-- Locks, counters, flags and unique keys are keys of their own: end(18) value, end zeros when it has none. The server
-- removes them, at most a millisecond late; what counts is the end that they carry.
local forever = '000000000000000000'
local function entry_key(key) return base .. 'entry:' .. key end
local function live(entry)
  if not entry then return nil end
  local ends = sub(entry, 1, 18)
  if ends == forever or ends > now_text then return sub(entry, 19), ends end
  return nil
end
local function keep(key, value, ends)
  if ends == forever then
    call('SET', entry_key(key), ends .. value)
  else
    call('SET', entry_key(key), ends .. value, 'PXAT', string.format('%.0f', math.ceil(ends / 1000)))
  end
end
