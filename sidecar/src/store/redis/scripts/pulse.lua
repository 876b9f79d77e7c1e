-- A sign of life.

local function run_for(p, ran)
  if ran > p.ran then
    p.ran, p.changed = ran, true
  end
end

-- The answer to a sign of life.
local function pulse(p)
  return { 'ok', p.mark ~= '' and p.mark, p.stream }
end
