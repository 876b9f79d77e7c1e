#!lua flags=allow-oom
-- The tree is in use.
-- PARTS tree
-- KEYS tree names about data
-- ARGV ttl
keep(false)
return { 'ok' }
