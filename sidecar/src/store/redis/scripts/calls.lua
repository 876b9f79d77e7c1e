-- Live calls, their journal, and the replies of those that ended.

local PROGRESS = { 'mark', 'stream', 'ran', 'resumes', 'attempts', 'total', 'log' }
local CALL = { 'digest', 'inputs', 'input1', 'context', 'revision', 'retry', 'prior', unpack(PROGRESS) }

local function read_call(id)
  local names = {}
  for i, name in ipairs(CALL) do
    names[i] = name .. ':' .. id
  end
  local f = redis.call('HMGET', K.calls, unpack(names))
  if not f[1] then
    corrupt(K.calls, 'lacks a call that is in the queue')
  end
  local c = { id = id, digest = f[1], input1 = f[3], context = f[4] or '', revision = f[5] or '', mark = f[8] }
  c.inputs = number(f[2], K.calls, 'inputs')
  c.retry = number(f[6], K.calls, 'retry')
  c.prior = number(f[7], K.calls, 'prior')
  c.stream = f[9] == '1'
  c.ran = number(f[10], K.calls, 'ran')
  c.resumes = number(f[11], K.calls, 'resumes')
  c.attempts = number(f[12], K.calls, 'attempts')
  c.total = number(f[13], K.calls, 'total')
  local fence, seq, bytes = string.match(f[14] or '', '^(%d+) (%d+) (%d+)$')
  if not fence then
    corrupt(K.calls, 'has a log entry that cannot be read')
  end
  c.log = { fence = tonumber(fence), seq = tonumber(seq), bytes = tonumber(bytes) }
  c.new = {}
  return c
end

local function read_input(c)
  if c.inputs == 0 then
    return {}
  end
  local input = { c.input1 }
  for first = 2, c.inputs, 1000 do
    local names = {}
    for i = first, math.min(first + 999, c.inputs) do
      names[#names + 1] = 'input' .. fmt(i) .. ':' .. c.id
    end
    for _, message in ipairs(redis.call('HMGET', K.calls, unpack(names))) do
      input[#input + 1] = message
    end
  end
  for i = 1, c.inputs do
    if not input[i] then
      corrupt(K.calls, 'lacks a message of its input')
    end
  end
  return input
end

-- A change to a live call, written by `write_call`.
local function set(c, name, text)
  c.new[#c.new + 1] = name .. ':' .. c.id
  c.new[#c.new + 1] = text
end

local function count(c, name, n)
  if c[name] ~= n then
    c[name] = n
    set(c, name, fmt(n))
  end
end

local function write_call(c)
  for first = 1, #c.new, 1000 do
    redis.call('HSET', K.calls, unpack(c.new, first, math.min(first + 999, #c.new)))
  end
end

local function marked(old, mark)
  if old then
    return string.sub(old, 1, -2) .. ',' .. mark .. ']'
  end
  return '[' .. mark .. ']'
end

local function described(c, own, steps)
  return { c.id, not own and read_input(c), not own and c.context, not own and c.revision, c.mark or false,
    c.stream and 1 or 0, steps, fmt(c.ran), c.resumes, c.retry, c.prior, c.attempts, c.total }
end

-- A journal entry is a letter for its kind and then its bytes; intents are no messages.
local function journalled()
  local messages = {}
  for _, step in ipairs(redis.call('LRANGE', K.wal, 0, -1)) do
    if string.sub(step, 1, 1) ~= 'I' then
      messages[#messages + 1] = string.sub(step, 2)
    end
  end
  return messages
end

local function living(s, place)
  local c, first = read_call(s.queue[place]), place == 1
  return { c.id, place - 1, first and held(s) and 1 or 0, first and s.interrupted and not s.token and 1 or 0, c.resumes,
    first and journalled() or {}, fmt(s.fence) }
end

-- ---- replies --------------------------------------------------------------------------------------------------------

-- A list: how it ended, its document, its messages. `nil` once it is past its time.
local function read_reply(call)
  local ended = number(redis.call('ZSCORE', K.done, call), K.done, 'end')
  if ended + math.min(tonumber(A.replyTtl), tonumber(A.sessionTtl)) <= now then
    return nil
  end
  local reply = redis.call('LRANGE', K.reply, 0, -1)
  return reply[1] and reply
end

local function how_it_ended(header)
  local ended, retry, version, token = string.match(header, '^(%a+) (%d+) (%d+) (%S+)$')
  if not ended then
    corrupt(K.reply, 'has a first line that cannot be read')
  end
  return ended, tonumber(retry), tonumber(version), token
end

