#!lua flags=allow-oom
-- Marks one live call to be stopped.
-- PARTS prelude calls
-- KEYS head ctx calls wal done digests due sessions
-- ARGV channel slot session sessionTtl call mark
local s = read_session()
if not position(s, A.call) then
  return { 'no-running-call' }
end
local c = read_call(A.call)
expect_indexes()

set(c, 'mark', marked(c.mark, A.mark))
write_call(c)
touch(s)
s.parked = false
save(s)
announce(s)
return { 'marked' }
