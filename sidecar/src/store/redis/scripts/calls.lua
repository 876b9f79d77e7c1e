-- Live calls.

-- How a live call does, with what it was begun with (`p.call`).
local function read_call(id, text, progress)
  if text == nil then
    text, progress = unpack(redis.call('HMGET', K.head, 'c' .. id, 'p' .. id))
  end
  if not text or #text < c.SIZE or string.byte(text) ~= 1 then
    corrupt(K.head, 'lacks a call that is in the queue')
  end
  if progress and #progress < p.SIZE then
    corrupt(K.head, 'has a call that cannot be read')
  end
  local p = progress and { struct.unpack(p.FORMAT, progress) } or p.NEW
  p.mark, p.id, p.call, p.changed = progress and string.sub(progress, p.SIZE + 1) or '', id, text, false
  return p
end

local function written_progress(p)
  return struct.pack(p.FORMAT, unpack(p, 1, p.COUNT)) .. p.mark
end

local function write_call(p)
  if p.changed then
    write('p' .. p.id, written_progress(p))
    p.changed = false
  end
end

-- What a call was begun with: `c`, and where its parts begin.
local function begun(text)
  local c = { struct.unpack(c.FORMAT, text) }
  local context = c.SIZE + c.digestSize
  local opening = context + c.contextSize + c.revisionSize
  if #text < opening then
    corrupt(K.head, 'has a call that cannot be read')
  end
  c.digest, c.queued = string.sub(text, c.SIZE + 1, context), string.sub(text, opening + 1)
  return c
end
