-- What every script of a tree stands on: what it holds, who has written, how long it is kept.

-- What the tree holds. Where there is none: nothing.
local function read_tree()
  local f = redis.call('HMGET', K.tree, 'bytes', 'files', 'floor')
  return { bytes = number(f[1], K.tree, 'bytes'), files = number(f[2], K.tree, 'files'), floor = number(f[3], K.tree, 'floor') }
end

-- `<etag> <size> <time of the last write> <1 where it is not text>`, or nothing.
local function read_about(path)
  local text = redis.call('HGET', K.about, path)
  if not text then
    return nil
  end
  local etag, size, modified, binary = string.match(text, '^(%x+) (%d+) (%d+) ([01])$')
  if not etag then
    corrupt(K.about, 'has an entry that cannot be read')
  end
  return { text = text, etag = etag, size = tonumber(size), modified = modified, binary = binary == '1' }
end

-- Whether anything is in a folder of this name: `0` is the byte after `/`.
local function is_folder(path)
  return #redis.call('ZRANGEBYLEX', K.names, '[' .. path .. '/', '(' .. path .. '0', 'LIMIT', 0, 1) > 0
end

-- Puts off the tree's end, in strides: kept for its time, and at most a 64th longer. All keys end in the same instant.
local function keep(fresh)
  local ttl = tonumber(A.ttl)
  if fresh or redis.call('PTTL', K.tree) < ttl then
    local till = fmt(now + ttl + math.floor(ttl / 64) + 1)
    for _, key in ipairs({ K.tree, K.names, K.about, K.data }) do
      redis.call('PEXPIREAT', key, till)
    end
  end
end

local function save_tree(t)
  redis.call('HSET', K.tree, 'bytes', fmt(t.bytes), 'files', fmt(t.files))
end

-- The session that writes: `fenced` where its fence is lower than one seen, and what this tool call answered before.
local function read_writer(t)
  local f = redis.call('HMGET', K.writer, 'fence', 'call', 'op:' .. A.op)
  local w = { fence = number(f[1], K.writer, 'fence'), same = f[2] == A.call }
  w.fenced = tonumber(A.fence) < math.max(w.fence, t.floor)
  w.answer = w.same and f[3] or nil
  return w
end

-- Calls of a session come one after the other: only the last one's tool calls can come again.
local function save_writer(w, ...)
  if not w.same then
    redis.call('UNLINK', K.writer)
  end
  redis.call('HSET', K.writer, 'fence', A.fence, 'call', A.call, ...)
  redis.call('PEXPIREAT', K.writer, fmt(now + tonumber(A.ttl) + math.floor(tonumber(A.ttl) / 64) + 1))
end

-- Whether the file is as the caller wants it: `any`, `exists`, `absent`, or `is` and an etag.
local function holds(about)
  if A.condition == 'any' then
    return true
  elseif A.condition == 'absent' then
    return not about
  end
  return about and (A.condition == 'exists' or about.etag == A.wanted)
end

