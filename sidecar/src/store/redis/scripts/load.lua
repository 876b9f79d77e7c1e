#!lua flags=no-writes
-- The committed state; `last` bounds the messages.
-- PARTS prelude
-- KEYS head ctx
-- ARGV last
local s = read_session()
if not s.exists then
  return { 'nothing' }
end
check_length(s)
local last, messages = tonumber(A.last), {}
if not last then
  messages = redis.call('LRANGE', K.ctx, 0, -1)
elseif last > 0 then
  messages = redis.call('LRANGE', K.ctx, -last, -1)
end
return { 'loaded', fmt(s.created), fmt(s.version), s.epoch, fmt(s.turns), s.revision, s.interrupted and 1 or 0,
  redis.call('HGET', K.head, 'meta') or '', messages }
