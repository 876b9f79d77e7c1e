#!lua
-- Writes a file, in place of the one that may be there.
-- PARTS tree
-- KEYS tree names about data writer
-- ARGV ttl path content etag binary condition wanted maxTree maxFiles fence call op answer then the folders it is in
local t = read_tree()
local w
if K.writer then
  w = read_writer(t)
  if w.fenced then
    return { 'fenced' }
  elseif w.answer then
    return { 'recorded', w.answer }
  end
end
expect(K.data, 'hash')
local folders = { unpack(ARGV, rest) }
if #folders > 0 then
  for i, about in ipairs(redis.call('HMGET', K.about, unpack(folders))) do
    if about then
      return { 'blocked', folders[i] }
    end
  end
end
if is_folder(A.path) then
  return { 'folder' }
end
local old = read_about(A.path)
if not holds(old) then
  return { 'changed', old and old.etag }
end
local size = #A.content
local after = t.bytes - (old and old.size or 0) + size
if (after > tonumber(A.maxTree) and not (old and size <= old.size)) or (not old and t.files >= tonumber(A.maxFiles)) then
  return { 'limit', fmt(t.bytes), fmt(t.files), old and fmt(old.size) or false }
end

local fresh = t.files == 0
redis.call('HSET', K.data, A.path, A.content)
redis.call('HSET', K.about, A.path, A.etag .. ' ' .. fmt(size) .. ' ' .. fmt(now) .. ' ' .. A.binary)
redis.call('ZADD', K.names, 0, A.path)
t.bytes, t.files = after, t.files + (old and 0 or 1)
save_tree(t)
keep(fresh)
if w then
  save_writer(w, 'op:' .. A.op, A.answer)
end
return { 'written', fmt(now), old and 0 or 1 }
