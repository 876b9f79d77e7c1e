#!lua
-- Makes the last call, if it failed, live again: its input and what it said are in the history already.
-- PARTS prelude called queue calls journal replies lease admit attach
-- KEYS head ctx due sessions reply live
-- ARGV request seen attempts context revision queued holder
local id = called(K.reply)
local f = redis.call('HMGET', K.head, 's', 'd' .. id)
local s = read_session(f[1])
local list = ids(s)
local place = position(list, id)
if place then
  -- A retry of the failure that was seen is under way; any other live call has not failed.
  local p = read_call(id)
  local c = begun(p.call)
  if c.retry <= tonumber(A.seen) then
    return { 'busy' }
  end
  return attach(s, list, place)
end
local text, r
if s.created > 0 and f[2] then
  text, r = read_reply()
end
if not text then
  return { 'unknown' }
end
if r.retry ~= tonumber(A.seen) then
  return { 'done', text }
end
-- 70 is `F`, failed.
if r.ended ~= 70 then
  return { 'not-retryable' }
end
if #list > 0 then
  return { 'busy' }
end
if r.version ~= s.version then
  return { 'not-retryable' }
end
local d = { struct.unpack(d.FORMAT, f[2]) }
local p = p.NEW
p.stream, p.attempts, p.total = q.stream, tonumber(A.attempts), tonumber(A.attempts)
p.mark, p.id, p.changed = '', id, q.stream == 1 or p.attempts > 0
local c = c.NEW
c.digest, c.retry, c.prior = string.sub(f[2], d.SIZE + 1), r.retry + 1, r.messages
-- Finished before, and live again. Nothing has ended since.
if d.place == s.next - 1 then
  s.next = d.place
end
local answer = admit(s, p, c, p, 0, { described = described })
redis.call('HDEL', K.head, 'd' .. id, 'n' .. fmt(d.place))
redis.call('UNLINK', K.reply, K.live)
return answer
