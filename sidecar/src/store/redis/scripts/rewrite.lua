#!lua
-- Replaces the history, where nothing runs and the condition holds.
-- PARTS prelude
-- KEYS head ctx calls wal done digests tomb due sessions
-- ARGV slot session sessionTtl nonce condition wanted epoch turns revision meta messages then the messages
local s = read_session()
if #s.queue > 0 then
  return { 'busy' }
end
local nonce, version = string.match(s.rewrite or '', '^(%x+) (%d+)$')
if nonce == A.nonce then
  return { 'rewritten', version }
end
local holds = (A.condition == 'exists' and s.exists) or (A.condition == 'absent' and not s.exists)
  or (A.condition == 'version' and s.exists and s.version == tonumber(A.wanted))
if not holds then
  return { 'mismatch', s.exists and fmt(s.version) or false }
end
expect_indexes()
local messages = {}
for i = 1, tonumber(A.messages) do
  messages[i] = ARGV[rest + i - 1]
end

touch(s)
if not s.exists then
  create(s, read_grave(s), A.epoch)
end
s.epoch, s.version, s.len = A.epoch, s.version + 1, #messages
s.turns, s.revision, s.interrupted = tonumber(A.turns), A.revision, false
sweep(s)
redis.call('UNLINK', K.ctx)
push(K.ctx, messages)
save(s, { K.ctx }, { 'rewrite', A.nonce .. ' ' .. fmt(s.version), 'meta', A.meta })
return { 'rewritten', fmt(s.version) }
