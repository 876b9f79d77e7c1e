#!lua flags=allow-oom
-- A part of a file. It writes only to put off the tree's end.
-- PARTS tree
-- KEYS tree names about data
-- ARGV ttl path from len
local about = read_about(A.path)
if not about then
  return { is_folder(A.path) and 'folder' or 'nothing' }
end
local content = redis.call('HGET', K.data, A.path)
if not content or #content ~= about.size then
  corrupt(K.data, 'has another content than was written')
end
keep(false)
local from = tonumber(A.from)
return { 'file', about.text, string.sub(content, from + 1, from + tonumber(A.len)) }
