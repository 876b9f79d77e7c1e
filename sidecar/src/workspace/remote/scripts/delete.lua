#!lua flags=allow-oom
-- Removes a file.
-- PARTS tree
-- KEYS tree names about data
-- ARGV ttl path condition wanted
local t = read_tree()
local old = read_about(A.path)
if not old and is_folder(A.path) then
  return { 'folder' }
end
if not holds(old) then
  return { 'changed', old and old.etag }
end
if not old then
  return { 'nothing' }
end
expect(K.data, 'hash')
redis.call('HDEL', K.data, A.path)
redis.call('HDEL', K.about, A.path)
redis.call('ZREM', K.names, A.path)
t.bytes, t.files = math.max(t.bytes - old.size, 0), math.max(t.files - 1, 0)
save_tree(t)
keep(false)
return { 'deleted' }
