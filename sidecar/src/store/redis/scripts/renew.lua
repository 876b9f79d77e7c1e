#!lua flags=allow-oom
-- A sign of life; the lease is moved ahead only when a third of it is gone.
-- PARTS prelude called calls holder log pulse
-- KEYS head ctx due live sessions
-- ARGV request events
local h, id = { struct.unpack(h.FORMAT, A.request) }, called(K.live)
local f = redis.call('HMGET', K.head, 's', 'c' .. id, 'p' .. id)
local s = read_session(f[1])
if not current(s, id, h.fence, h.nonce) then
  return { 'lease-lost' }
end
local p = read_call(id, f[2], f[3])
expect_indexes()
expect_log(p, A.events)

run_for(p, h.ran)
local opened = p.streamed == 0
local logged = log(p, h.fence, A.events, {}, 0)
local stride = false
if math.max(s.till - now, 0) < LIMIT.renew then
  write_call(p)
  touch(s)
  s.till = now + LIMIT.lease
  stride = save(s)
elseif p.changed then
  redis.call('HSET', K.head, 'p' .. id, written_progress(p))
end
if (stride and p.streamed == 1) or (logged and opened) then
  redis.call('PEXPIREAT', K.live, s.kept + 1)
end
if logged and s.watched == 1 then
  -- HERE announce
  announce(s)
end
return pulse(p)
