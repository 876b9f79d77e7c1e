#!lua flags=allow-oom
-- What a tool call answered, if it was carried out. Notes the fence of who asks.
-- PARTS tree
-- KEYS tree writer
-- ARGV ttl fence call op
local w = read_writer(read_tree())
if w.fenced then
  return { 'fenced' }
end
if tonumber(A.fence) > w.fence then
  redis.call('HSET', K.writer, 'fence', A.fence)
  redis.call('PEXPIREAT', K.writer, fmt(now + tonumber(A.ttl)))
end
return { 'ok', w.answer }
