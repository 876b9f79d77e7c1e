-- The journal, and a call for who is to run it or wants to know.

-- The journal of the call at the head, from entry `first` on.
local function journal(s, first)
  local steps = {}
  for from = first or 1, s.wal, 1000 do
    local names = {}
    for i = from, math.min(from + 999, s.wal) do
      names[#names + 1] = 'w' .. i
    end
    for _, step in ipairs(redis.call('HMGET', K.head, unpack(names))) do
      steps[#steps + 1] = step or corrupt(K.head, 'lacks a part of its journal')
    end
  end
  return steps
end

-- A journal entry is a letter for its kind and then its bytes; intents are no messages.
local function journalled(s)
  local messages = {}
  for _, step in ipairs(journal(s)) do
    if string.byte(step) ~= 73 then
      messages[#messages + 1] = string.sub(step, 2)
    end
  end
  return messages
end

-- A call for who is to run it; `own` is the one that the request itself has brought.
local function described(s, p, own)
  return { p.id, not own and p.call, written_progress(p), not own and redis.call('HGET', K.head, 'i' .. p.id), journal(s) }
end

local function living(s, list, place)
  local p, first = read_call(list[place]), place == 1
  return { p.id, place - 1, first and held(s) and 1 or 0, first and s.interrupted == 1 and s.held == 0 and 1 or 0, p.resumes,
    first and journalled(s) or {}, fmt(s.fence) }, p
end
