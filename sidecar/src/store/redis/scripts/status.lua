#!lua flags=no-writes
-- What became of a call, and where `events` is asked for, its log after an id.
-- PARTS prelude queue graves calls journal replies
-- KEYS head tomb reply live
-- ARGV call events after
local f = redis.call('HMGET', K.head, 's', 'd' .. A.call)
local s = read_session(f[1])
local list = ids(s)
local place, finished = position(list, A.call), s.created > 0 and f[2]
local status, p, text, r
if place then
  local call_there
  call_there, p = living(s, list, place)
  status = { 'live', call_there }
elseif finished then
  text = read_reply()
  status = text and { 'done', text } or { 'expired' }
else
  local grave = read_grave(s, A.call)
  status = { grave and grave.knows and 'deleted' or 'unknown' }
end
if A.events == '0' then
  return { status }
end

local over = not place and not (finished and ({ struct.unpack(d.FORMAT, finished) })[2] + LIMIT.eventTtl > now)
if over then
  return { status, 0, {} }
end
-- Where nothing was logged, what there is to tell is in the call, or in its reply.
if p and p.streamed == 0 then
  return { status, 0, {}, p.call }
elseif finished then
  text, r = stored_reply()
  if r and r.queuedFence > 0 then
    return { status, 0, {}, text }
  end
end
if redis.call('EXISTS', K.live) == 0 then
  return { status, 0, {} }
end
local info, length, added, first = redis.call('XINFO', 'STREAM', K.live), 0, 0, nil
for i = 1, #info, 2 do
  if info[i] == 'length' then
    length = info[i + 1]
  elseif info[i] == 'entries-added' then
    added = info[i + 1]
  elseif info[i] == 'first-entry' then
    first = info[i + 1]
  end
end
local gap = added > length
if gap and A.after ~= '' and first then
  local fence, seq = string.match(first[1], '^(%d+)-(%d+)$')
  local after_fence, after_seq = string.match(A.after, '^(%d+)-(%d+)$')
  fence, seq, after_fence, after_seq = tonumber(fence), tonumber(seq), tonumber(after_fence), tonumber(after_seq)
  gap = after_fence < fence or (after_fence == fence and after_seq < seq)
end
local events = redis.call('XRANGE', K.live, A.after == '' and '-' or '(' .. A.after, '+')
return { status, gap and 1 or 0, events }
