-- What every script stands on. K, A, LIMIT and the fields of records are put in by name before it is sent; before it come
-- `rest` (the place of the first argument without a name) and `now`. Numbers are exact up to 2^53; `..` would round them.

local function corrupt(key, why)
  error({ err = 'CORRUPT ' .. key .. ' ' .. why }, 0)
end

local function fmt(n)
  return string.format('%d', n)
end

local function number(text, key, field)
  if not text then
    return 0
  end
  if not string.find(text, '^%d+$') then
    corrupt(key, 'has a ' .. field .. ' that is no number')
  end
  return tonumber(text)
end

-- A command against a key of another type fails, and what was written before it stays. So nothing is written before
-- every key that will be written was either read as what it should be, or looked at here.
local function expect(key, kind)
  if key then
    local found = redis.call('TYPE', key).ok
    if found ~= kind and found ~= 'none' then
      corrupt(key, 'is a ' .. found .. ', not a ' .. kind)
    end
  end
end
