#!lua flags=allow-oom
-- Removes all files, and refuses every fence below the floor from now on.
-- PARTS tree
-- KEYS tree names about data writer
-- ARGV ttl floor
local t = read_tree()
redis.call('UNLINK', K.tree, K.names, K.about, K.data)
if K.writer then
  redis.call('UNLINK', K.writer)
end
redis.call('HSET', K.tree, 'floor', fmt(math.max(t.floor, tonumber(A.floor))))
keep(true)
return { 'ok' }
