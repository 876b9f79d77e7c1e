-- What only the holder of a lease does.

local function is_first(s, id)
  return string.sub(s.queue, 1, #id + 2) == queued(id)
end

-- The call at the head, if it is the one meant and the token the one the slot knows: whether its time has passed or
-- not.
local function current(s, id, fence, nonce)
  return s.held == 1 and s.fence == fence and s.nonce == nonce and is_first(s, id)
end
