#!lua flags=allow-oom
-- Paths in order, from `from` up to `to` (bounds as ZRANGEBYLEX has them), and what each of them is. With `folders`, all
-- that is in one folder below the first `skip` bytes is one entry. It writes only to put off the tree's end.
-- PARTS tree
-- KEYS tree names about data
-- ARGV ttl from to skip folders limit
local limit, skip, folders = tonumber(A.limit), tonumber(A.skip), A.folders == '1'
local names, is_file, from = {}, {}, A.from
-- One more than asked for tells whether there is a next page.
while #names <= limit do
  local want = folders and math.min(64, limit + 1 - #names) or limit + 1
  local found = redis.call('ZRANGEBYLEX', K.names, from, A.to, 'LIMIT', 0, want)
  local jumped = false
  for _, name in ipairs(found) do
    local slash = folders and string.find(name, '/', skip + 1, true)
    names[#names + 1] = slash and string.sub(name, 1, slash) or name
    if slash then
      -- `0` is the byte after `/`: behind all that is in the folder.
      from, jumped = '[' .. string.sub(name, 1, slash - 1) .. '0', true
      break
    end
    is_file[#names], from = true, '(' .. name
  end
  if not jumped and #found < want then
    break
  end
end
local more = #names > limit
if more then
  names[#names] = nil
end
local answer = { more and 1 or 0 }
for i, name in ipairs(names) do
  answer[#answer + 1] = name
  answer[#answer + 1] = is_file[i] and (redis.call('HGET', K.about, name) or corrupt(K.about, 'lacks a file')) or ''
end
keep(false)
return answer
