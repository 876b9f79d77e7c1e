#!lua flags=allow-oom
-- A sign of life; the lease is moved ahead only when a third of it is gone.
-- PARTS prelude calls holder
-- KEYS head ctx calls wal done digests due live sessions
-- ARGV channel slot session lease sessionTtl eventBytes token call ran events then the events: seq, name, data, nothing
local s = read_session()
local c = current(s)
if not c then
  return { 'lease-lost' }
end
expect_indexes()
expect(K.live, 'stream')

run_for(c)
local logged = log(c, rest, {}, 0)
write_call(c)
if math.max(s.till - now, 0) < math.floor(tonumber(A.lease) * 2 / 3) then
  touch(s)
  s.till = now + tonumber(A.lease)
  save(s)
end
if logged and s.watched then
  announce(s)
end
return pulse(c)
