-- Joins a call that is live already, and claims where it can.
local function attach(s, list, place)
  expect_indexes()
  touch(s)
  s.parked = 0
  local p = read_call(list[place])
  local first = place == 1 and p or read_call(list[1])
  if q.stream == 1 and p.stream == 0 then
    p.stream, p.changed = 1, true
  end
  local grant = lease(s, first) and granted(s, described(s, first))
  if not grant then
    s.watched = 1
  end
  write_call(p)
  write_call(first)
  return saved(s, grant) or { 'waiting', place - 1 }
end
