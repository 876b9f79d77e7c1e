-- The call that a reply or an event log is named after.
local function called(key)
  return unescaped(string.sub(key, #K.head + 2))
end
