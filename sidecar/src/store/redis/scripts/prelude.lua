-- What every script of a session stands on: its head, the lease, the indexes, how long things are kept.

-- Anonymous sessions are in no index; their place among the keys is taken by one that is there anyway.
local listed = K.sessions ~= K.due and K.sessions

-- The slot as the indexes spell it: between the hash tag, which ends where `due` begins, and `:h`.
local function slot()
  return string.sub(K.head, #K.due - 2, -3)
end

-- What `keys.rs` has escaped.
local function unescaped(id)
  if string.find(id, '%', 1, true) then
    id = string.gsub(id, '%%(%x%x)', function(code) return string.char(tonumber(code, 16)) end)
  end
  return id
end

local function session()
  return unescaped(string.sub(K.head, #K.sessions, -3))
end

-- ---- the session ----------------------------------------------------------------------------------------------------

-- In the queue each id stands after its length.
local function queued(id)
  return struct.pack('>I2', #id) .. id
end

-- The session by its field in the head; where there is none, or its time has passed, one that does not exist.
local function read_session(text)
  local s
  if text then
    if #text < s.SIZE or string.byte(text) ~= 1 then
      corrupt(K.head, 'has a session that cannot be read')
    end
    s = { struct.unpack(s.FORMAT, text) }
    local queue = s.SIZE + s.revisionSize
    local holder = queue + s.queueSize
    local more = holder + s.holderSize
    if #text < more or s.created == 0 then
      corrupt(K.head, 'has a session that cannot be read')
    end
    if s.expires > now then
      s.revision, s.queue = string.sub(text, s.SIZE + 1, queue), string.sub(text, queue + 1, holder)
      s.holder, s.more = string.sub(text, holder + 1, more), string.sub(text, more + 1)
      return s
    end
  elseif redis.call('EXISTS', K.head) == 1 then
    corrupt(K.head, 'has no session in it')
  end
  s = s.NEW
  s.layout, s.revision, s.queue, s.holder, s.more = 1, '', '', '', ''
  return s
end

local function written_session(s)
  s.revisionSize, s.queueSize, s.holderSize = #s.revision, #s.queue, #s.holder
  return struct.pack(s.FORMAT, unpack(s, 1, s.COUNT)) .. s.revision .. s.queue .. s.holder .. s.more
end

local function lost_messages(s, len)
  -- A history that lost a part of itself must not be taken for a shorter one.
  corrupt(K.ctx, 'has ' .. fmt(len) .. ' messages where ' .. fmt(s.len) .. ' were written')
end

local function check_length(s)
  local len = redis.call('LLEN', K.ctx)
  if len ~= s.len then
    lost_messages(s, len)
  end
end

local function touch(s)
  s.touched, s.expires = true, now + LIMIT.sessionTtl
end

local function held(s)
  return s.held == 1 and s.till > now
end

-- ---- writing --------------------------------------------------------------------------------------------------------

-- Fields of the head, written by `save` together with the session.
local writes, count = {}, 0

local function write(field, text)
  writes[count + 1], writes[count + 2] = field, text
  count = count + 2
end

local function expect_indexes()
  expect(K.due, 'zset')
  expect(listed, 'zset')
end

-- The last write of a script: the head, the two indexes, and for how long all of it is kept. A session's other keys
-- outlive its head, so a head without them is damage, and they without a head are litter. All are moved ahead in strides,
-- not at every write: that a session's time has passed is in the head. `new` says that this script made the history's key.
local function save(s, new)
  local stride = s.expires > s.kept
  if stride then
    s.kept = s.expires + LIMIT.stride
  end
  local due = 0
  if s.queue ~= '' and s.parked == 0 then
    due = s.held == 1 and s.till or now
    if due ~= s.due and redis.call('ZADD', K.due, due, slot()) == 1 then
      redis.call('PEXPIREAT', K.due, s.kept + 1)
    end
  elseif s.due > 0 or s.fresh then
    redis.call('ZREM', K.due, slot())
  end
  s.due = due
  s.text = written_session(s)
  redis.call('HSET', K.head, 's', s.text, unpack(writes, 1, math.min(count, 1000)))
  for first = 1001, count, 1000 do
    redis.call('HSET', K.head, unpack(writes, first, math.min(first + 999, count)))
  end
  if s.touched and listed then
    redis.call('ZADD', listed, now, session())
  end
  if stride then
    redis.call('PEXPIREAT', K.head, s.kept)
    if listed then
      redis.call('PEXPIREAT', listed, s.kept + 1)
    end
    if s.queue ~= '' then
      redis.call('PEXPIREAT', K.due, s.kept + 1)
    end
  end
  if stride or new then
    redis.call('PEXPIREAT', K.ctx, s.kept + 1)
  end
  return stride
end
