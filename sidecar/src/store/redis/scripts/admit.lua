-- How a call comes in.

-- Puts a call at the end of the queue, then claims. `p` is the call and `c` what is known of it, `first` is the call at the
-- head, `ahead` how many are before this one. `more` has what only some need: `write` is the first to write, `described` tells
-- of the head.
local function admit(s, p, c, first, ahead, more)
  expect_indexes()
  touch(s)
  s.parked = 0
  local leased = lease(s, first)
  p.call = struct.pack(c.FORMAT, 1, s.fence, ahead, c.retry, c.prior, q.inputs, #c.digest, #A.context, #A.revision)
    .. c.digest .. A.context .. A.revision .. A.queued
  local grant = leased and granted(s, more and more.described and more.described(s, first))
  if not grant then
    s.watched = 1
  end
  if more and more.write then
    more.write(s)
  end
  write('c' .. p.id, p.call)
  if p.changed then
    write('p' .. p.id, struct.pack(p.FORMAT, unpack(p, 1, p.COUNT)) .. p.mark)
  end
  s.queue = s.queue .. queued(p.id)
  return saved(s, grant) or { 'waiting', ahead }
end
