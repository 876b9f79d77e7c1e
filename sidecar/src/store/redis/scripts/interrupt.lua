#!lua flags=allow-oom
-- Marks one live call to be stopped.
-- PARTS prelude queue calls marks announce
-- KEYS head ctx due sessions
-- ARGV call mark
local s = read_session(redis.call('HGET', K.head, 's'))
if not position(ids(s), A.call) then
  return { 'no-running-call' }
end
local p = read_call(A.call)
expect_indexes()

add_mark(p, A.mark)
write_call(p)
touch(s)
s.parked = 0
save(s)
announce(s)
return { 'marked' }
