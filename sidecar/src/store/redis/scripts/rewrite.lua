#!lua
-- Replaces the history, where nothing runs and the condition holds.
-- PARTS prelude graves
-- KEYS head ctx due sessions tomb
-- ARGV nonce condition wanted epoch turns revision meta then the messages
local f = redis.call('HMGET', K.head, 's', 'rewrite')
local s = read_session(f[1])
if s.queue ~= '' then
  return { 'busy' }
end
local nonce, version = string.match(s.created > 0 and f[2] or '', '^(%x+) (%d+)$')
if nonce == A.nonce then
  return { 'rewritten', version }
end
local exists = s.created > 0
local holds = (A.condition == 'exists' and exists) or (A.condition == 'absent' and not exists)
  or (A.condition == 'version' and exists and s.version == tonumber(A.wanted))
if not holds then
  return { 'mismatch', exists and fmt(s.version) or false }
end
expect_indexes()

touch(s)
if not exists then
  create(s, read_grave(s), A.epoch)
end
s.epoch, s.version, s.len = A.epoch, s.version + 1, arguments - rest + 1
s.turns, s.revision, s.interrupted, s.tail = tonumber(A.turns), A.revision, 0, string.rep('\0', 10)
sweep(s)
redis.call('UNLINK', K.ctx)
for first = rest, arguments, 1000 do
  redis.call('RPUSH', K.ctx, unpack(ARGV, first, math.min(first + 999, arguments)))
end
write('rewrite', A.nonce .. ' ' .. fmt(s.version))
write('meta', A.meta)
save(s, true)
return { 'rewritten', fmt(s.version) }
