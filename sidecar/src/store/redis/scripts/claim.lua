#!lua flags=allow-oom
-- Takes the lease of a slot that has work, where it is free.
-- PARTS prelude queue calls journal lease
-- KEYS head ctx due sessions
-- ARGV request holder
local s = read_session(redis.call('HGET', K.head, 's'))
if s.queue == '' then
  redis.call('ZREM', K.due, slot())
  return { 'nothing' }
end
expect_indexes()
local p = read_call(ids(s)[1])
if not lease(s, p) then
  return held(s) and { 'held', fmt(s.till - now) } or { 'left' }
end
s.parked = 0
local grant = granted(s, described(s, p))
write_call(p)
return saved(s, grant)
