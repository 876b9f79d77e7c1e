#!lua
-- Journals steps of the running call, before their side effects.
-- PARTS prelude calls holder
-- KEYS head ctx calls wal done digests due live sessions
-- ARGV channel slot session lease sessionTtl eventBytes token call ran at steps events
-- ARGV then the steps, a letter for the kind and the bytes, and the events: seq, name, data, place of the message
local s = read_session()
local c = current(s)
if not c then
  return { 'lease-lost' }
end
local steps = {}
for i = 1, tonumber(A.steps) do
  steps[i] = ARGV[rest + i - 1]
end
local at, length = tonumber(A.at), redis.call('LLEN', K.wal)
local repeated = #steps > 0 and length == at + #steps
if repeated then
  for i, step in ipairs(redis.call('LRANGE', K.wal, at, -1)) do
    repeated = repeated and step == steps[i]
  end
end
if length ~= at and not repeated then
  return { 'journal', length }
end
expect_indexes()
expect(K.live, 'stream')

run_for(c)
if not repeated and #steps > 0 then
  count(c, 'attempts', 0)
  push(K.wal, steps)
end
local logged = log(c, rest + #steps, steps, 1)
write_call(c)
touch(s)
s.till = now + tonumber(A.lease)
save(s, length == 0 and { K.wal } or nil)
if logged and s.watched then
  announce(s)
end
return pulse(c)
