-- Sessions that are not there yet, or not any more.

-- What a delete has left, unless the head says that there is nothing.
local function read_grave(s, id)
  if s.created > 0 and s.buried == 0 then
    return nil
  end
  local f = redis.call('HMGET', K.tomb, 'expires', 'fence', 'ver', 'call:' .. (id or ''))
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
    s.version, s.fence, s.buried = grave.version, grave.fence, 1
  end
end

-- Litter of a session that ran out. Only a script that creates a session calls this, as its first write.
local function sweep(s)
  if s.fresh then
    redis.call('UNLINK', K.head, K.ctx)
    if listed then
      -- Twice the time: a claim keeps a session without changing it.
      redis.call('ZREMRANGEBYSCORE', listed, '-inf', now - 2 * LIMIT.sessionTtl)
    end
  end
end
