#!lua
-- Admits a call, or finds it, and takes the lease where it is free. Who believes to know the session leaves out the
-- tombstone, and is told where it is needed.
-- PARTS prelude lease admit
-- KEYS head ctx due sessions tomb?
-- ARGV request call digest context revision queued holder then the messages of the input, as one
local f = redis.call('HMGET', K.head, 's', 'd' .. A.call)
local s = read_session(f[1])
if q.inputs > 0 then
  write('i' .. A.call, ARGV[rest])
end
local p, c = p.NEW, c.NEW
p.stream, p.mark, p.id, p.changed, c.digest = q.stream, '', A.call, q.stream == 1, A.digest
if s.created > 0 and s.buried == 0 and s.queue == '' and not f[2] then
  return admit(s, p, c, p, 0)
end

-- Nearly every call has come in by now.
-- HERE queue graves calls marks journal attach announce
if not K.tomb and (s.created == 0 or s.buried == 1) then
  return { 'incomplete' }
end
local grave = read_grave(s, A.call)
if grave and grave.knows then
  return { 'deleted' }
end
local list = ids(s)
local place = position(list, A.call)
if place then
  local p = read_call(A.call)
  local c = begun(p.call)
  if c.digest ~= A.digest then
    return { 'conflict' }
  end
  count = 0
  return attach(s, list, place)
end
if s.created > 0 and f[2] then
  return { string.sub(f[2], d.SIZE + 1) == A.digest and 'finished' or 'conflict' }
end
if #list > LIMIT.queue then
  return { 'full' }
end
-- 82 is `R`, reject; 73 is `I`, interrupt.
if q.onBusy == 82 and #list > 0 and held(s) then
  return { 'busy' }
end
if s.created == 0 then
  create(s, grave, q.epoch)
end
local others = {}
for i, id in ipairs(list) do
  if i == 1 or q.onBusy == 73 then
    local p = read_call(id)
    others[#others + 1] = p
    if q.onBusy == 73 then
      add_mark(p, '{}')
    end
  end
end
local answer = admit(s, p, c, others[1] or p, #list, {
  described = others[1] and described,
  write = function(s)
    sweep(s)
    for _, other in ipairs(others) do
      write_call(other)
    end
  end,
})
if q.onBusy == 73 and #list > 0 then
  announce(s)
end
return answer
