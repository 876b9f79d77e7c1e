-- What only the holder of a lease does.

-- The call at the head, if it is the one meant and the token the one the slot knows: whether its time has passed or
-- not.
local function current(s)
  return s.token == A.token and s.queue[1] == A.call and read_call(A.call)
end

local function run_for(c)
  count(c, 'ran', math.max(c.ran, tonumber(A.ran)))
end

-- Logs the events that start at argument `at`, four arguments each, under the holder's fence; none that the log has.
-- A message is named by its place among the `messages` of this request, whose kinds are `skip` bytes long.
local function log(c, at, messages, skip)
  local fence, last, logged = tonumber(string.match(A.token, '^%d+')), c.log, false
  for i = at, at + 4 * tonumber(A.events) - 1, 4 do
    local seq, data, message = tonumber(ARGV[i]), ARGV[i + 2], messages[(tonumber(ARGV[i + 3]) or -1) + 1]
    if fence > last.fence or (fence == last.fence and seq > last.seq) then
      local id = fmt(fence) .. '-' .. fmt(seq)
      if message then
        message = string.sub(message, skip + 1)
        redis.call('XADD', K.live, id, 'name', ARGV[i + 1], 'data', data, 'message', message)
      else
        redis.call('XADD', K.live, id, 'name', ARGV[i + 1], 'data', data)
      end
      last.fence, last.seq, last.bytes = fence, seq, last.bytes + #data + (message and #message or 0)
      logged = true
    end
  end
  if logged then
    local length = last.bytes > tonumber(A.eventBytes) and redis.call('XLEN', K.live) or 0
    if length > 1 then
      redis.call('XTRIM', K.live, 'MAXLEN', math.floor(length / 2))
      last.bytes = math.floor(last.bytes / 2)
    end
    set(c, 'log', fmt(last.fence) .. ' ' .. fmt(last.seq) .. ' ' .. fmt(last.bytes))
  end
  return logged
end

-- The answer to a sign of life.
local function pulse(c)
  return { 'ok', c.mark or false, c.stream and 1 or 0 }
end

