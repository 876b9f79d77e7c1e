#!lua flags=allow-oom
-- Ends the call at the head: its messages into the history, its reply kept, the next call or nobody's lease. Who believes
-- that nothing was logged leaves out the log, and is told where there is one.
-- PARTS prelude called calls holder
-- KEYS head ctx due sessions reply live?
-- ARGV request revision reply events then the messages, and the rest of the state where it has changed
local k, id = { struct.unpack(k.FORMAT, A.request) }, called(K.reply)
local f = redis.call('HMGET', K.head, 's', 'c' .. id, 'p' .. id, 'i' .. id)
local s = read_session(f[1])
if not current(s, id, k.fence, k.nonce) then
  -- HERE replies
  local text, r
  if s.created > 0 then
    text, r = read_reply()
  end
  if text and r.fence == k.fence and r.nonce == k.nonce then
    if s.held == 1 and s.fence == k.fence and s.nonce == k.nonce and s.queue ~= '' then
      -- HERE queue journal
      return { 'committed', described(s, read_call(ids(s)[1])) }
    end
    return { 'committed', false }
  end
  return { 'lease-lost' }
end
if s.version ~= k.version then
  return { 'lease-lost' }
end
local p = read_call(id, f[2], f[3])
if p.mark ~= '' and #p.mark ~= k.marksSeen then
  return { 'marked', p.mark }
end
local c = begun(f[2])
-- Events of a call that has no log yet are kept with its reply, where they are not too many.
local kept = p.streamed == 0 and #c.queued + 11 + #fmt(c.position) + k.weight <= LIMIT.eventBytes
local log_them
expect_indexes()
expect(K.reply, 'string')
if not kept then
  if not K.live then
    return { 'incomplete' }
  end
  -- HERE log
  expect_log(p, A.events)
  log_them = log
end
check_length(s)
local messages = {}
for i = 1, k.messages do
  messages[i] = ARGV[rest + i - 1]
end
-- What is added to the history, and what is said in the reply. In what the call brought each message is after its length.
local added, said, input, at = {}, {}, f[4], 1
for i = 1, c.inputs do
  local size = input and #input >= at + 3 and struct.unpack('>I4', input, at)
  if not size or at + 3 + size > #input then
    corrupt(K.head, 'lacks a message of a call')
  end
  added[i] = string.sub(input, at + 4, at + 3 + size)
  at = at + 4 + size
end
if c.prior > 0 then
  said = redis.call('LRANGE', K.ctx, -c.prior, -1)
end
if s.wal > 0 then
  -- HERE journal
  for _, message in ipairs(journalled(s)) do
    added[#added + 1], said[#said + 1] = message, message
  end
end
for i = 1, k.messages do
  added[#added + 1], said[#said + 1] = messages[i], messages[i]
end
local rest_of_queue, gone = string.sub(s.queue, #id + 3), { 'c' .. id, 'p' .. id, 'i' .. id }
for i = 1, s.wal do
  gone[#gone + 1] = 'w' .. i
end
s.wal = 0
local following = false
if rest_of_queue ~= '' and k.goOn == 1 then
  -- HERE queue journal
  following = described(s, read_call(ids(s)[2]))
end

for first = 1, #added, 1000 do
  redis.call('RPUSH', K.ctx, unpack(added, first, math.min(first + 999, #added)))
end
local events, opening, fence = kept and A.events or '', kept and c.queued or '', kept and c.fence or 0
local reply = { struct.pack(r.FORMAT, 1, k.ended, c.retry, s.version + 1, k.fence, k.nonce, now, fence, c.position, k.messages,
  #said, #A.reply, #opening, #events), A.reply, opening, events }
for i = 1, #said do
  reply[#reply + 1] = struct.pack('>I4', #said[i])
  reply[#reply + 1] = said[i]
end
local till = math.min(LIMIT.replyTtl, LIMIT.sessionTtl)
if kept then
  till = math.max(till, math.min(LIMIT.eventTtl, LIMIT.sessionTtl))
end
redis.call('SET', K.reply, table.concat(reply), 'PXAT', now + till)
if not kept then
  log_them(p, k.fence, A.events, messages, 0)
  if p.streamed == 1 then
    redis.call('PEXPIREAT', K.live, now + math.min(LIMIT.eventTtl, LIMIT.sessionTtl))
  end
end

-- Finished calls that need not be remembered any more: past their time and not among the latest.
while s.next - s.first + 1 > LIMIT.remembered do
  local place = 'n' .. fmt(s.first)
  local oldest = redis.call('HGET', K.head, place)
  local text = oldest and redis.call('HGET', K.head, 'd' .. oldest)
  if text and ({ struct.unpack(d.FORMAT, text) })[2] >= now - LIMIT.replyTtl then
    break
  end
  gone[#gone + 1] = place
  gone[#gone + 1] = oldest and 'd' .. oldest or place
  s.first = s.first + 1
end
write('d' .. id, struct.pack(d.FORMAT, s.next, now) .. c.digest)
write('n' .. fmt(s.next), id)
if k.meta == 1 then
  write('meta', ARGV[rest + k.messages])
end
s.next = s.next + 1
touch(s)
local first = s.len == 0
s.queue, s.version, s.turns, s.revision, s.interrupted = rest_of_queue, s.version + 1, k.turns, A.revision, 0
s.len, s.till = s.len + #added, now + LIMIT.lease
if #added > 0 then
  s.tail = k.tail
end
if rest_of_queue == '' or k.goOn == 0 then
  s.held = 0
end
local waited_for = s.watched == 1
s.watched = waited_for and rest_of_queue ~= '' and 1 or 0
save(s, first)
for first = 1, #gone, 1000 do
  redis.call('HDEL', K.head, unpack(gone, first, math.min(first + 999, #gone)))
end
if waited_for then
  -- HERE announce
  announce(s)
end
return { 'committed', following }
