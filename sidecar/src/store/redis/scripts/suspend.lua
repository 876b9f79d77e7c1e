#!lua flags=allow-oom
-- Gives the running call back unfinished, for another replica. Not ours any more: nothing to give.
-- PARTS prelude calls holder
-- KEYS head ctx calls wal done digests due live sessions
-- ARGV channel slot session sessionTtl eventBytes token call ran park events then the events: seq, name, data, nothing
local s = read_session()
local c = current(s)
if not c then
  return { 'ok' }
end
expect_indexes()
expect(K.live, 'stream')

run_for(c)
log(c, rest, {}, 0)
write_call(c)
touch(s)
s.token, s.interrupted, s.watched = nil, true, true
s.parked = A.park == '1' and #s.queue == 1 and not c.mark
save(s)
announce(s)
return { 'ok' }
