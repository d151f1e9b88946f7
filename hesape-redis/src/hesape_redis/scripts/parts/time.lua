-- Times are text of 18 digits, microseconds since the epoch: Lua's numbers are exact to the year 2255 only, jobs may be
-- due in 9999, and text of one length compares like its numbers.
local call, base = redis.call, KEYS[1]
local sub = string.sub
local function pad(us) return string.format('%018.0f', us) end
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_text = pad(now)
