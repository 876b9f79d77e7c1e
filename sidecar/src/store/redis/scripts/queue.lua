-- The queue, id by id.

local function ids(s)
  local list, at, queue = {}, 1, s.queue
  while at <= #queue do
    local size = #queue > at and struct.unpack('>I2', queue, at)
    if not size or at + 1 + size > #queue then
      corrupt(K.head, 'has a queue that cannot be read')
    end
    list[#list + 1] = string.sub(queue, at + 2, at + 1 + size)
    at = at + 2 + size
  end
  return list
end

local function position(list, id)
  for i = 1, #list do
    if list[i] == id then
      return i
    end
  end
end
