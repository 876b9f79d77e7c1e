#!lua flags=allow-oom
-- Removes a session for good and leaves a tombstone. Answers the calls whose replies and events the caller unlinks.
-- PARTS prelude queue announce
-- KEYS head ctx due sessions tomb
-- ARGV
local s = read_session(redis.call('HGET', K.head, 's'))
if s.created == 0 then
  return { 'nothing' }
end
local earlier = redis.call('HGET', K.tomb, 'expires')
earlier = earlier and number(earlier, K.tomb, 'expires') > now
expect_indexes()

local fields, left = {}, {}
local function bury(id)
  fields[#fields + 1] = 'call:' .. id
  fields[#fields + 1] = '1'
end
local oldest = now - math.max(LIMIT.replyTtl, LIMIT.eventTtl)
for first = s.first, s.next - 1, 500 do
  local places = {}
  for place = first, math.min(first + 499, s.next - 1) do
    places[#places + 1] = 'n' .. fmt(place)
  end
  local finished, names = {}, {}
  for _, id in ipairs(redis.call('HMGET', K.head, unpack(places))) do
    if id then
      bury(id)
      finished[#finished + 1], names[#names + 1] = id, 'd' .. id
    end
  end
  for i, text in ipairs(#names > 0 and redis.call('HMGET', K.head, unpack(names)) or {}) do
    if text and ({ struct.unpack(d.FORMAT, text) })[2] > oldest then
      left[#left + 1] = finished[i]
    end
  end
end
for _, id in ipairs(ids(s)) do
  bury(id)
  left[#left + 1] = id
end
if not earlier then
  redis.call('UNLINK', K.tomb)
end
local expires = now + LIMIT.replyTtl
redis.call('HSET', K.tomb, 'fence', fmt(s.fence), 'ver', fmt(s.version), 'expires', fmt(expires))
for first = 1, #fields, 1000 do
  redis.call('HSET', K.tomb, unpack(fields, first, math.min(first + 999, #fields)))
end
redis.call('PEXPIREAT', K.tomb, expires)
redis.call('UNLINK', K.head, K.ctx)
redis.call('ZREM', K.due, slot())
if listed then
  redis.call('ZREM', listed, session())
end
s.queue = ''
announce(s)
return { 'deleted', left }
