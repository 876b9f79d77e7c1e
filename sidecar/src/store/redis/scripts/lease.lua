-- The lease, what it is granted with, and how calls come in.

-- Takes it for the call at the head, if it is free or has run out and the call is not to be left, or if it is this very
-- request's own.
local function lease(s, first)
  if not s.token or string.sub(s.token, -32) ~= A.nonce then
    if held(s) then
      return false
    end
    -- Whoever had it did not give it back.
    local attempts = first.attempts + (s.token and 1 or 0)
    if attempts >= tonumber(A.leaveFrom) and attempts < tonumber(A.leaveTo) then
      return false
    end
    if s.token then
      count(first, 'attempts', attempts)
      count(first, 'total', first.total + 1)
    end
    if s.token or s.interrupted then
      count(first, 'resumes', first.resumes + 1)
    end
    s.fence = math.max(s.fence + 1, now)
    s.token = fmt(s.fence) .. '.' .. A.nonce
    s.holder = A.holder
  end
  s.till = now + tonumber(A.lease)
  s.expires = now + tonumber(A.sessionTtl)
  return true
end

-- What the caller lacks: how many of its own messages still hold, the others, and the rest of the state unless it has
-- that too.
local function history(s)
  if s.fresh then
    return 0, {}, ''
  end
  check_length(s)
  local from, meta = 0, nil
  if A.knownEpoch == s.epoch and tonumber(A.knownVersion) <= s.version then
    local len = tonumber(A.knownLen)
    local last = len > 0 and len <= s.len and redis.call('LINDEX', K.ctx, len - 1)
    if (len == 0 and A.knownTail == string.rep('0', 40)) or (last and redis.sha1hex(last) == A.knownTail) then
      from = len
      meta = tonumber(A.knownVersion) ~= s.version
    end
  end
  if meta == nil then
    meta = true
  end
  local messages = from < s.len and redis.call('LRANGE', K.ctx, from, -1) or {}
  return from, messages, meta and (redis.call('HGET', K.head, 'meta') or '')
end

-- `own`: the call is the one this request brought, so what it brought is not sent back.
local function granted(s, first, own)
  local from, messages, meta = history(s)
  local steps = own and {} or redis.call('LRANGE', K.wal, 0, -1)
  return { 'granted', s.token, fmt(s.created), fmt(s.version), s.epoch, fmt(s.turns), s.revision,
    s.interrupted and 1 or 0, from, messages, meta, described(first, own, steps) }
end

-- ---- who comes in: begin and retry ----------------------------------------------------------------------------------

-- Joins a call that is live already, and claims where it can.
local function attach(s, c, place)
  expect_indexes()
  touch(s)
  s.parked = false
  local first = place == 1 and c or read_call(s.queue[1])
  if A.stream == '1' and not c.stream then
    c.stream = true
    set(c, 'stream', '1')
  end
  local grant = lease(s, first) and granted(s, first, false)
  s.watched = s.watched or not grant
  write_call(c)
  if first ~= c then
    write_call(first)
  end
  save(s, nil, grant and s.holder and { 'holder', s.holder })
  return grant or { 'waiting', place - 1 }
end

-- Puts a call at the end of the queue, then claims. `others` are live calls that change too.
local function admit(s, grave, c, others)
  expect_indexes()
  if #s.queue == 0 then
    expect(K.calls, 'hash')
  end
  touch(s)
  s.parked = false
  if not s.exists then
    create(s, grave, A.epoch)
  end
  local ahead = #s.queue
  local first = c
  if ahead > 0 then
    first = others[s.queue[1]] or read_call(s.queue[1])
    others[first.id] = first
  end
  local grant = lease(s, first) and granted(s, first, first == c)
  s.watched = s.watched or not grant

  local queued = string.sub(A.queued, 1, -2) .. ',"position":' .. fmt(ahead) .. '}'
  set(c, 'log', fmt(s.fence) .. ' 0 ' .. fmt(#queued))
  sweep(s)
  if c.retry > 0 then
    -- Finished before, and live again.
    redis.call('ZREM', K.done, c.id)
    redis.call('HDEL', K.digests, c.id)
  end
  redis.call('UNLINK', K.reply, K.live)
  redis.call('XADD', K.live, fmt(s.fence) .. '-0', 'name', 'call.queued', 'data', queued)
  for _, other in pairs(others) do
    write_call(other)
  end
  write_call(c)
  s.queue[ahead + 1] = c.id
  save(s, { K.live, ahead == 0 and K.calls or nil }, grant and s.holder and { 'holder', s.holder })
  return grant or { 'waiting', ahead }
end

