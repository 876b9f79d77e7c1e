#!lua
-- Makes the last call, if it failed, live again: its input and what it said are in the history already.
-- PARTS prelude calls lease
-- KEYS head ctx calls wal done digests tomb due reply live sessions
-- ARGV slot session lease sessionTtl replyTtl call seen attempts context revision stream queued
-- ARGV holder nonce leaveFrom leaveTo epoch knownEpoch knownVersion knownLen knownTail
local s = read_session()
local place = position(s, A.call)
if place then
  local live = read_call(A.call)
  -- A retry of the failure that was seen is under way; any other live call has not failed.
  if live.retry <= tonumber(A.seen) then
    return { 'busy' }
  end
  return attach(s, live, place)
end
local digest = s.exists and redis.call('HGET', K.digests, A.call)
local reply = digest and read_reply(A.call)
if not reply then
  return { 'unknown' }
end
local ended, retry, version = how_it_ended(reply[1])
if retry ~= tonumber(A.seen) then
  return { 'done', reply }
end
if ended ~= 'failed' then
  return { 'not-retryable' }
end
if #s.queue > 0 then
  return { 'busy' }
end
if version ~= s.version then
  return { 'not-retryable' }
end
local c = { id = A.call, stream = A.stream == '1', ran = 0, resumes = 0 }
c.attempts, c.total = tonumber(A.attempts), tonumber(A.attempts)
c.retry, c.prior = retry + 1, #reply - 2
c.new = { 'digest:' .. c.id, digest, 'inputs:' .. c.id, '0', 'context:' .. c.id, A.context,
  'revision:' .. c.id, A.revision, 'stream:' .. c.id, A.stream,
  'retry:' .. c.id, fmt(c.retry), 'prior:' .. c.id, fmt(c.prior),
  'attempts:' .. c.id, A.attempts, 'total:' .. c.id, A.attempts }
return admit(s, nil, c, {})
