-- What every script of a session stands on: its head, its live calls, the lease, the event log, how long things are kept.

-- ---- the session ----------------------------------------------------------------------------------------------------

-- The queue is one field of the head: each id after its length.
local function read_queue(text)
  local ids, at = {}, 1
  while at <= #text do
    local colon = string.find(text, ':', at, true)
    local length = colon and tonumber(string.sub(text, at, colon - 1))
    if not length or colon + length > #text then
      corrupt(K.head, 'has a queue that cannot be read')
    end
    ids[#ids + 1] = string.sub(text, colon + 1, colon + length)
    at = colon + length + 1
  end
  return ids
end

local function written_queue(ids)
  local parts = {}
  for i, id in ipairs(ids) do
    parts[i] = fmt(#id) .. ':' .. id
  end
  return table.concat(parts)
end

local function position(s, call)
  for i, id in ipairs(s.queue) do
    if id == call then
      return i
    end
  end
end

-- The head; where there is none, or its time has passed, that of a session that does not exist.
local function read_session()
  local f = redis.call('HMGET', K.head, 'created', 'updated', 'ver', 'epoch', 'fence', 'tok', 'until', 'revision',
    'interrupted', 'turns', 'rewrite', 'watched', 'parked', 'expires', 'kept', 'len', 'queue', 'buried')
  if not f[1] and (f[3] or f[5] or f[17]) then
    corrupt(K.head, 'has no time of creation')
  end
  local s = { exists = f[1] and number(f[14], K.head, 'expires') > now }
  if not s.exists then
    f = {}
  end
  s.created = number(f[1], K.head, 'created')
  s.updated = number(f[2], K.head, 'updated')
  s.version = number(f[3], K.head, 'ver')
  s.epoch = f[4] or ''
  s.fence = number(f[5], K.head, 'fence')
  s.token = f[6] ~= '' and f[6] or nil
  s.till = number(f[7], K.head, 'until')
  s.revision = f[8] or ''
  s.interrupted = f[9] == '1'
  s.turns = number(f[10], K.head, 'turns')
  s.rewrite = f[11]
  s.watched = f[12] == '1'
  s.parked = f[13] == '1'
  s.expires = number(f[14], K.head, 'expires')
  s.kept = number(f[15], K.head, 'kept')
  s.len = number(f[16], K.head, 'len')
  s.queue = read_queue(f[17] or '')
  s.buried = f[18] == '1'
  return s
end

-- A history that lost a part of itself must not be taken for a shorter one.
local function check_length(s)
  local len = redis.call('LLEN', K.ctx)
  if len ~= s.len then
    corrupt(K.ctx, 'has ' .. fmt(len) .. ' messages where ' .. fmt(s.len) .. ' were written')
  end
end

-- What a delete has left, unless the head says that there is nothing.
local function read_grave(s, call)
  if s.exists and not s.buried then
    return nil
  end
  local f = redis.call('HMGET', K.tomb, 'expires', 'fence', 'ver', 'call:' .. (call or ''))
  if not f[1] or number(f[1], K.tomb, 'expires') <= now then
    return nil
  end
  return { fence = number(f[2], K.tomb, 'fence'), version = number(f[3], K.tomb, 'ver'), knows = f[4] and true }
end

-- A session that is not there yet. Numbers go on where a deleted one ended.
local function create(s, grave, epoch)
  s.fresh = true
  s.created, s.epoch = now, epoch
  if grave then
    s.version, s.fence, s.buried = grave.version, grave.fence, true
  end
end

-- Litter of a session that ran out. Only a script that creates a session calls this, as its first write.
local function sweep(s)
  if s.fresh then
    redis.call('UNLINK', K.head, K.ctx, K.calls, K.wal, K.done, K.digests)
    if K.sessions then
      -- Twice the time: a claim keeps a session without changing it.
      redis.call('ZREMRANGEBYSCORE', K.sessions, '-inf', fmt(now - 2 * tonumber(A.sessionTtl)))
    end
  end
end

local function touch(s)
  s.updated, s.touched = now, true
  s.expires = now + tonumber(A.sessionTtl)
end

local function held(s)
  return s.token ~= nil and s.till > now
end

-- The last write of a script: the head, the two indexes, and for how long all of it is kept. `new` are keys that this
-- script made; `more` are further fields of the head. A session's other keys outlive its head, so a head without them
-- is damage, and they without a head are litter. They are moved ahead in strides, not at every write.
local function save(s, new, more)
  local stride = s.expires > s.kept
  if stride then
    s.kept = s.expires + math.floor(tonumber(A.sessionTtl) / 8) + 1
    new = { K.ctx, K.calls, K.wal, K.done, K.digests, K.live, K.sessions }
  end
  redis.call('HSET', K.head, 'created', fmt(s.created), 'updated', fmt(s.updated), 'ver', fmt(s.version),
    'epoch', s.epoch, 'fence', fmt(s.fence), 'tok', s.token or '', 'until', fmt(s.till), 'revision', s.revision,
    'interrupted', s.interrupted and '1' or '0', 'turns', fmt(s.turns), 'watched', s.watched and '1' or '0',
    'parked', s.parked and '1' or '0', 'expires', fmt(s.expires), 'kept', fmt(s.kept), 'len', fmt(s.len),
    'queue', written_queue(s.queue), 'buried', s.buried and '1' or '0', unpack(more or {}))
  redis.call('PEXPIREAT', K.head, fmt(s.expires))
  if #s.queue == 0 or s.parked then
    redis.call('ZREM', K.due, A.slot)
  else
    redis.call('ZADD', K.due, fmt(s.token and s.till or now), A.slot)
    redis.call('PEXPIREAT', K.due, fmt(s.kept))
  end
  if s.touched and K.sessions then
    redis.call('ZADD', K.sessions, fmt(s.updated), A.session)
  end
  for _, key in pairs(new or {}) do
    redis.call('PEXPIREAT', key, fmt(s.kept))
  end
end

local function expect_indexes()
  expect(K.due, 'zset')
  expect(K.sessions, 'zset')
end

-- Tells whoever listens to look; `!` says that there is work and nobody at it. Called after all changes to `s`.
local function announce(s)
  local orphaned = #s.queue > 0 and not s.parked and not s.token
  redis.call('PUBLISH', A.channel, A.slot .. (orphaned and '!' or ''))
end

