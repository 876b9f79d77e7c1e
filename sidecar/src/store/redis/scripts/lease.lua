-- The lease, what it is granted with, and how calls come in.

if #A.request ~= q.SIZE then
  error({ err = 'ERR a request that cannot be read' }, 0)
end
local q = { struct.unpack(q.FORMAT, A.request) }

-- Takes it for the call at the head, if it is free or has run out and the call is not to be left, or if it is this very
-- request's own.
local function lease(s, p)
  if s.held == 0 or s.nonce ~= q.nonce then
    if held(s) then
      return false
    end
    -- Whoever had it did not give it back.
    local attempts = p.attempts + s.held
    if attempts >= q.leaveFrom and attempts < q.leaveTo then
      return false
    end
    if s.held == 1 or s.interrupted == 1 then
      p.attempts, p.total, p.resumes, p.changed = attempts, p.total + s.held, p.resumes + 1, true
    end
    s.fence = math.max(s.fence + 1, now)
    s.held, s.nonce, s.holder = 1, q.nonce, A.holder
  end
  s.till = now + LIMIT.lease
  s.expires = now + LIMIT.sessionTtl
  return true
end

local NO_TAIL = string.rep('\0', 10)

-- What the caller lacks: how many of its own messages still hold, the others, and the rest of the state unless it has
-- that too.
local function history(s)
  if s.fresh then
    return 0, {}, ''
  end
  local from, messages, meta = 0, nil, true
  local good = q.known == 1 and q.knownEpoch == s.epoch and q.knownVersion <= s.version and q.knownLen <= s.len
  if good and q.knownLen == s.len and s.tail ~= NO_TAIL then
    check_length(s)
    if q.knownTail == s.tail then
      from, messages, meta = s.len, {}, q.knownVersion ~= s.version
    end
  elseif good then
    -- Its last message comes first.
    local first = math.max(q.knownLen - 1, 0)
    messages = redis.call('LRANGE', K.ctx, first, -1)
    if #messages ~= s.len - first then
      lost_messages(s, redis.call('LLEN', K.ctx))
    end
    local tail = NO_TAIL
    if q.knownLen > 0 then
      tail = string.gsub(string.sub(redis.sha1hex(messages[1]), 1, 20), '%x%x', function(code)
        return string.char(tonumber(code, 16))
      end)
    end
    if tail == q.knownTail then
      from, meta = q.knownLen, q.knownVersion ~= s.version
      if from > 0 then
        table.remove(messages, 1)
      end
    else
      messages = nil
    end
  end
  if not messages then
    messages = redis.call('LRANGE', K.ctx, 0, -1)
    if #messages ~= s.len then
      lost_messages(s, #messages)
    end
  end
  return from, messages, meta and (redis.call('HGET', K.head, 'meta') or '')
end

-- `told` is the call at the head, unless this very request has brought it. The session is put in when it is saved.
local function granted(s, told)
  local from, messages, meta = history(s)
  return { 'granted', '', from, messages, meta, told or false }
end

local function saved(s, grant)
  save(s)
  if grant then
    grant[2] = s.text
  end
  return grant
end
