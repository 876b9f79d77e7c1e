#!lua flags=no-writes
-- The live calls of a session, oldest first.
-- PARTS prelude queue calls journal
-- KEYS head
-- ARGV
local s = read_session(redis.call('HGET', K.head, 's'))
local list, calls = ids(s), {}
for place = 1, #list do
  calls[place] = living(s, list, place)
end
return calls
