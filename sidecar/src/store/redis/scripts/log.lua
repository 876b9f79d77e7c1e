-- The event log of a running call.

-- Before the first write of a script that may log.
local function expect_log(p, events)
  if p.streamed == 1 then
    expect(K.live, 'stream')
  elseif events ~= '' then
    p.log = begun(p.call)
  end
end

-- How much of a log `call.queued` takes: with its position.
local function queued_weight(c)
  return #c.queued + 11 + #fmt(c.position)
end

local function open_log(p)
  local c = p.log
  redis.call('UNLINK', K.live)
  redis.call('XADD', K.live, fmt(c.fence) .. '-0', 'e', 'Q' .. c.queued, 'p', c.position)
  p.streamed, p.logFence, p.logSeq, p.logBytes = 1, c.fence, 0, queued_weight(c)
end

-- Logs events under the holder's fence; none that the log has. A message is named by its place among the `messages` of
-- this request, whose kinds are `skip` bytes long. Until a call has something to log there is no log.
local function log(p, fence, events, messages, skip)
  local logged, at = false, 1
  while at <= #events do
    local seq, name, place, size, from = struct.unpack(e.FORMAT, events, at)
    at = from + size
    if p.streamed == 0 then
      local c = p.log
      if fence < c.fence or (fence == c.fence and seq == 0) then
        name = nil
      else
        open_log(p)
        logged = true
      end
    end
    if name and (fence > p.logFence or (fence == p.logFence and seq > p.logSeq)) then
      local id, event, message = fmt(fence) .. '-' .. fmt(seq), string.char(name) .. string.sub(events, from, at - 1), messages[place]
      if message then
        message = string.sub(message, skip + 1)
        redis.call('XADD', K.live, id, 'e', event, 'm', message)
      else
        redis.call('XADD', K.live, id, 'e', event)
      end
      p.logFence, p.logSeq, p.logBytes = fence, seq, p.logBytes + size - 1 + (message and #message or 0)
      logged = true
    end
  end
  if logged then
    p.changed = true
    local length = p.logBytes > LIMIT.eventBytes and redis.call('XLEN', K.live) or 0
    if length > 1 then
      redis.call('XTRIM', K.live, 'MAXLEN', math.floor(length / 2))
      p.logBytes = math.floor(p.logBytes / 2)
    end
  end
  return logged
end
