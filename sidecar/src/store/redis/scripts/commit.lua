#!lua flags=allow-oom
-- Ends the call at the head: its messages into the history, its reply kept, the next call or nobody's lease.
-- PARTS prelude calls holder
-- KEYS head ctx calls wal done digests due reply live sessions
-- ARGV channel slot session lease sessionTtl replyTtl eventTtl eventBytes remembered
-- ARGV token version call turns hasMeta meta revision ended reply marksSeen goOn messages events
-- ARGV then the messages, and the events: seq, name, data, place of the message
local s = read_session()
local header = s.exists and redis.call('LINDEX', K.reply, 0)
if header and string.sub(header, -#A.token - 1) == ' ' .. A.token and read_reply(A.call) then
  local first = s.token == A.token and s.queue[1] and read_call(s.queue[1])
  return { 'committed', first and described(first, false, redis.call('LRANGE', K.wal, 0, -1)) or false }
end
local c = current(s)
if not c or s.version ~= tonumber(A.version) then
  return { 'lease-lost' }
end
if c.mark and #c.mark ~= tonumber(A.marksSeen) then
  return { 'marked', c.mark }
end
expect_indexes()
expect(K.live, 'stream')
expect(K.digests, 'hash')
check_length(s)
local remembered = redis.call('ZCARD', K.done)
local input, journal = read_input(c), journalled()
local reply = c.prior > 0 and redis.call('LRANGE', K.ctx, -c.prior, -1) or {}
table.insert(reply, 1, A.reply)
table.insert(reply, 1, A.ended .. ' ' .. fmt(c.retry) .. ' ' .. fmt(s.version + 1) .. ' ' .. A.token)
local messages = {}
for i = 1, tonumber(A.messages) do
  messages[i] = ARGV[rest + i - 1]
end
local following = s.queue[2] and read_call(s.queue[2])
local answer = { 'committed', following and A.goOn == '1' and described(following, false, {}) or false }

local added = input
for _, list in ipairs({ journal, messages }) do
  for _, message in ipairs(list) do
    added[#added + 1] = message
    reply[#reply + 1] = message
  end
end
push(K.ctx, added)
redis.call('UNLINK', K.reply)
push(K.reply, reply)
redis.call('PEXPIREAT', K.reply, fmt(now + math.min(tonumber(A.replyTtl), tonumber(A.sessionTtl))))
log(c, rest + #messages, messages, 0)

-- Finished calls that need not be remembered any more: past their time and not among the latest.
local surplus = remembered + 1 - tonumber(A.remembered)
if surplus > 0 then
  local forgotten = '(' .. fmt(math.max(now - tonumber(A.replyTtl), 0))
  local old = redis.call('ZRANGEBYSCORE', K.done, '-inf', forgotten, 'LIMIT', 0, surplus)
  for first = 1, #old, 1000 do
    local last = math.min(first + 999, #old)
    redis.call('ZREM', K.done, unpack(old, first, last))
    redis.call('HDEL', K.digests, unpack(old, first, last))
  end
end
redis.call('ZADD', K.done, fmt(now), c.id)
redis.call('HSET', K.digests, c.id, c.digest)

local new = { s.len == 0 and K.ctx or nil, remembered == 0 and K.done or nil, remembered == 0 and K.digests or nil }
table.remove(s.queue, 1)
if following then
  local gone = {}
  for i, name in ipairs(CALL) do
    gone[i] = name .. ':' .. c.id
  end
  for i = 2, c.inputs do
    gone[#gone + 1] = 'input' .. fmt(i) .. ':' .. c.id
  end
  for first = 1, #gone, 1000 do
    redis.call('HDEL', K.calls, unpack(gone, first, math.min(first + 999, #gone)))
  end
  redis.call('UNLINK', K.wal)
else
  redis.call('UNLINK', K.calls, K.wal)
end
touch(s)
s.version, s.turns, s.revision, s.interrupted = s.version + 1, tonumber(A.turns), A.revision, false
s.len, s.till = s.len + #added, now + tonumber(A.lease)
if not following or A.goOn ~= '1' then
  s.token = nil
end
local waited_for = s.watched
s.watched = waited_for and following and true
save(s, new, A.hasMeta == '1' and { 'meta', A.meta })
redis.call('PEXPIREAT', K.live, fmt(now + math.min(tonumber(A.eventTtl), tonumber(A.sessionTtl))))
if waited_for then
  announce(s)
end
return answer
