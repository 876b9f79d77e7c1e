#!lua flags=no-writes
-- The committed state; `last` bounds the messages.
-- PARTS prelude
-- KEYS head ctx
-- ARGV last
local f = redis.call('HMGET', K.head, 's', 'meta')
local s = read_session(f[1])
if s.created == 0 then
  return { 'nothing' }
end
check_length(s)
local last, messages = tonumber(A.last), {}
if not last then
  messages = redis.call('LRANGE', K.ctx, 0, -1)
elseif last > 0 then
  messages = redis.call('LRANGE', K.ctx, -last, -1)
end
return { 'loaded', f[1], f[2] or '', messages }
