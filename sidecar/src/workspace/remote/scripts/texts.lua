#!lua flags=no-writes
-- The texts of some files, from the first on, until there are `budget` bytes of them.
-- PARTS tree
-- KEYS about data
-- ARGV budget then paths
local answer, held = {}, 0
for i = rest, #ARGV do
  local about = read_about(ARGV[i])
  local content = about and not about.binary and redis.call('HGET', K.data, ARGV[i])
  answer[#answer + 1] = (not about and 'gone') or (about.binary and 'binary') or 'text'
  answer[#answer + 1] = content or ''
  held = held + #(content or '')
  if held >= tonumber(A.budget) then
    break
  end
end
return answer
