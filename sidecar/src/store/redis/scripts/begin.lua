#!lua
-- Admits a call, or finds it, and takes the lease where it is free.
-- PARTS prelude calls lease
-- KEYS head ctx calls wal done digests tomb due reply live sessions
-- ARGV channel slot session lease sessionTtl replyTtl queueLimit call digest context revision stream onBusy queued
-- ARGV holder nonce leaveFrom leaveTo epoch knownEpoch knownVersion knownLen knownTail inputs then the messages of the input
local s = read_session()
local grave = read_grave(s, A.call)
if grave and grave.knows then
  return { 'deleted' }
end
local place = position(s, A.call)
if place then
  local c = read_call(A.call)
  if c.digest ~= A.digest then
    return { 'conflict' }
  end
  return attach(s, c, place)
end
local digest = s.exists and redis.call('HGET', K.digests, A.call)
if digest then
  if digest ~= A.digest then
    return { 'conflict' }
  end
  local reply = read_reply(A.call)
  return reply and { 'done', reply } or { 'expired' }
end
if #s.queue > tonumber(A.queueLimit) then
  return { 'full' }
end
if A.onBusy == 'reject' and #s.queue > 0 and held(s) then
  return { 'busy' }
end

local others = {}
if A.onBusy == 'interrupt' then
  for _, id in ipairs(s.queue) do
    local other = read_call(id)
    other.mark = marked(other.mark, '{}')
    set(other, 'mark', other.mark)
    others[id] = other
  end
end
local c = { id = A.call, stream = A.stream == '1', ran = 0, resumes = 0, retry = 0, prior = 0, attempts = 0, total = 0 }
c.new = { 'digest:' .. c.id, A.digest, 'inputs:' .. c.id, A.inputs, 'context:' .. c.id, A.context,
  'revision:' .. c.id, A.revision, 'stream:' .. c.id, A.stream }
for i = 1, tonumber(A.inputs) do
  set(c, 'input' .. fmt(i), ARGV[rest + i - 1])
end
local interrupts = #s.queue > 0 and A.onBusy == 'interrupt'
local answer = admit(s, grave, c, others)
if interrupts then
  announce(s)
end
return answer
