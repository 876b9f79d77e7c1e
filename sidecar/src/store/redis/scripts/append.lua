#!lua
-- Journals steps of the running call, before their side effects.
-- PARTS prelude called calls holder log pulse
-- KEYS head ctx due live sessions
-- ARGV request events then the steps, a letter for the kind and the bytes
local h, id = { struct.unpack(h.FORMAT, A.request) }, called(K.live)
local f = redis.call('HMGET', K.head, 's', 'c' .. id, 'p' .. id)
local s = read_session(f[1])
if not current(s, id, h.fence, h.nonce) then
  return { 'lease-lost' }
end
local p = read_call(id, f[2], f[3])
local steps = {}
for i = 1, h.steps do
  steps[i] = ARGV[rest + i - 1]
end
local repeated = #steps > 0 and s.wal == h.at + #steps
if repeated then
  -- HERE journal
  for i, step in ipairs(journal(s, h.at + 1)) do
    repeated = repeated and step == steps[i]
  end
end
if s.wal ~= h.at and not repeated then
  return { 'journal', s.wal }
end
expect_indexes()
expect_log(p, A.events)

run_for(p, h.ran)
if not repeated and #steps > 0 then
  if p.attempts > 0 then
    p.attempts, p.changed = 0, true
  end
  for i, step in ipairs(steps) do
    write('w' .. s.wal + i, step)
  end
  s.wal = s.wal + #steps
end
local opened = p.streamed == 0
local logged = log(p, h.fence, A.events, steps, 1)
write_call(p)
touch(s)
s.till = now + LIMIT.lease
if (save(s) and p.streamed == 1) or (logged and opened) then
  redis.call('PEXPIREAT', K.live, s.kept + 1)
end
if logged and s.watched == 1 then
  -- HERE announce
  announce(s)
end
return pulse(p)
