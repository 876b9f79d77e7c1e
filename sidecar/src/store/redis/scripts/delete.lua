#!lua flags=allow-oom
-- Removes a session for good and leaves a tombstone. Answers the calls whose replies and events the caller unlinks.
-- PARTS prelude
-- KEYS head ctx calls wal done digests tomb due sessions
-- ARGV channel slot session sessionTtl replyTtl eventTtl
local s = read_session()
if not s.exists then
  return { 'nothing' }
end
local f = redis.call('HMGET', K.tomb, 'expires')
local earlier = f[1] and number(f[1], K.tomb, 'expires') > now
local finished = redis.call('ZRANGE', K.done, 0, -1, 'WITHSCORES')
expect_indexes()

local fields, left = {}, {}
local oldest = now - math.max(tonumber(A.replyTtl), tonumber(A.eventTtl))
for i = 1, #finished, 2 do
  fields[#fields + 1] = 'call:' .. finished[i]
  fields[#fields + 1] = '1'
  if tonumber(finished[i + 1]) > oldest then
    left[#left + 1] = finished[i]
  end
end
for _, id in ipairs(s.queue) do
  fields[#fields + 1] = 'call:' .. id
  fields[#fields + 1] = '1'
  left[#left + 1] = id
end
if not earlier then
  redis.call('UNLINK', K.tomb)
end
local expires = fmt(now + tonumber(A.replyTtl))
redis.call('HSET', K.tomb, 'fence', fmt(s.fence), 'ver', fmt(s.version), 'expires', expires)
for first = 1, #fields, 1000 do
  redis.call('HSET', K.tomb, unpack(fields, first, math.min(first + 999, #fields)))
end
redis.call('PEXPIREAT', K.tomb, expires)
redis.call('UNLINK', K.head, K.ctx, K.calls, K.wal, K.done, K.digests)
redis.call('ZREM', K.due, A.slot)
if K.sessions then
  redis.call('ZREM', K.sessions, A.session)
end
s.queue = {}
announce(s)
return { 'deleted', left }
