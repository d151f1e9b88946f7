-- A list of any length, 4,000 at a time: unpack fails at 8,000. An even number, so that pairs stay together.
local function many(command, key, list)
  for first = 1, #list, 4000 do
    call(command, key, unpack(list, first, math.min(first + 3999, #list)))
  end
end
local function values(key, fields)
  if #fields <= 4000 then
    return #fields > 0 and call('HMGET', key, unpack(fields)) or {}
  end
  local found = {}
  for first = 1, #fields, 4000 do
    for _, value in ipairs(call('HMGET', key, unpack(fields, first, math.min(first + 3999, #fields)))) do
      found[#found + 1] = value
    end
  end
  return found
end
