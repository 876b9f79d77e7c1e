#!lua flags=no-writes
-- Slots of a bucket that have work and nobody at it.
-- KEYS due
-- ARGV limit
return redis.call('ZRANGEBYSCORE', K.due, '-inf', string.format('%.0f', now), 'LIMIT', 0, A.limit)
