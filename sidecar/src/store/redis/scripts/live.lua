#!lua flags=no-writes
-- The live calls of a session, oldest first.
-- PARTS prelude calls
-- KEYS head calls wal
-- ARGV
local s = read_session()
local calls = {}
for place = 1, #s.queue do
  calls[place] = living(s, place)
end
return calls
