#!lua flags=no-writes
-- What became of a call, and where `events` is asked for, its log after an id.
-- PARTS prelude calls
-- KEYS head calls wal done digests tomb reply live
-- ARGV sessionTtl replyTtl eventTtl call events after
local s = read_session()
local place = position(s, A.call)
local status
if place then
  status = { 'live', living(s, place) }
else
  local digest = s.exists and redis.call('HGET', K.digests, A.call)
  local grave = read_grave(s, A.call)
  if digest then
    local reply = read_reply(A.call)
    status = reply and { 'done', reply } or { 'expired' }
  else
    status = { grave and grave.knows and 'deleted' or 'unknown' }
  end
end
if A.events == '0' then
  return { status }
end

local over = not place
if status[1] == 'done' or status[1] == 'expired' then
  over = tonumber(redis.call('ZSCORE', K.done, A.call)) + tonumber(A.eventTtl) <= now
end
if over or redis.call('EXISTS', K.live) == 0 then
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
