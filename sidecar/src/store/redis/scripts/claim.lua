#!lua flags=allow-oom
-- Takes the lease of a slot that has work, where it is free.
-- PARTS prelude calls lease
-- KEYS head ctx calls wal done digests due sessions
-- ARGV slot session lease sessionTtl holder nonce leaveFrom leaveTo knownEpoch knownVersion knownLen knownTail
local s = read_session()
if #s.queue == 0 then
  redis.call('ZREM', K.due, A.slot)
  return { 'nothing' }
end
expect_indexes()
local first = read_call(s.queue[1])
if not lease(s, first) then
  return held(s) and { 'held', fmt(s.till - now) } or { 'left' }
end
s.parked = false
local grant = granted(s, first, false)
write_call(first)
save(s, nil, s.holder and { 'holder', s.holder })
return grant
