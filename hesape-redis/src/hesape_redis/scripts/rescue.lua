#!lua flags=allow-oom
-- parts: time many member state claim free retire
-- Retires the workers whose beats ran out; how many jobs came back. What else expires the server removes by itself.
local freed, workers = 0, call('HGETALL', base .. 'workers')
for i = 1, #workers, 2 do
  if sub(workers[i + 1], 19, 36) <= now_text then freed = freed + retire(workers[i]) end
end
return freed
