#!lua flags=allow-oom
-- Gives the running call back unfinished, for another replica. Not ours any more: nothing to give.
-- PARTS prelude called calls holder log pulse announce
-- KEYS head ctx due live sessions
-- ARGV request events
local h, id = { struct.unpack(h.FORMAT, A.request) }, called(K.live)
local f = redis.call('HMGET', K.head, 's', 'c' .. id, 'p' .. id)
local s = read_session(f[1])
if not current(s, id, h.fence, h.nonce) then
  return { 'ok' }
end
local p = read_call(id, f[2], f[3])
expect_indexes()
expect_log(p, A.events)

run_for(p, h.ran)
local opened = p.streamed == 0
local logged = log(p, h.fence, A.events, {}, 0)
write_call(p)
touch(s)
s.held, s.interrupted, s.watched = 0, 1, 1
s.parked = h.park == 1 and s.queue == queued(id) and p.mark == '' and 1 or 0
if (save(s) and p.streamed == 1) or (logged and opened) then
  redis.call('PEXPIREAT', K.live, s.kept + 1)
end
announce(s)
return { 'ok' }
