-- A job's member in the line where it waits or is reserved says all that changes about it:
--   priority + 32768 (5), due (18), sequence (16), id (36), attempts.lapses.exceptions.retried.1 when it has an error
-- What was never delivered ends after the id. Members are longer than 64 bytes, so that no line is ever a listpack,
-- which is two or three times dearer once it holds a batch.
local function id_of(member) return sub(member, 40, 75) end
local function counts_of(member)
  if #member == 75 then return '0', '0', '0', '', '' end
  return string.match(member, '^(%d+)%.(%d+)%.(%d+)%.(%d*)%.(1?)$', 76)
end
local function recount(member, attempts, lapses, exceptions, retried, failed)
  return sub(member, 1, 75) .. attempts .. '.' .. lapses .. '.' .. exceptions .. '.' .. retried .. '.' .. failed
end
local function sequence(number) return string.format('%016.0f', number) end
