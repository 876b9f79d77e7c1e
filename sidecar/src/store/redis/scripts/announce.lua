-- Tells whoever listens to look; `!` says that there is work and nobody at it. Called after all changes to `s`.
local function announce(s)
  local orphaned = s.queue ~= '' and s.parked == 0 and s.held == 0
  redis.call('PUBLISH', 'hf:' .. string.match(K.head, '^hf:{([^}]*)%.%d+}') .. ':announce', slot() .. (orphaned and '!' or ''))
end
