-- Replies of calls that have ended.

-- How it ended, its document, its events where they are in no log, its messages. `nil` once there is nothing.
local function stored_reply()
  local text = redis.call('GET', K.reply)
  if not text then
    return nil
  end
  if #text < r.SIZE or string.byte(text) ~= 1 then
    corrupt(K.reply, 'cannot be read')
  end
  return text, { struct.unpack(r.FORMAT, text) }
end

local function read_reply()
  local text, r = stored_reply()
  if text and r.at + math.min(LIMIT.replyTtl, LIMIT.sessionTtl) > now then
    return text, r
  end
end
