#!lua flags=no-writes
-- Slots of a bucket that have work and nobody at it.
-- KEYS due
-- ARGV limit
return redis.call('ZRANGEBYSCORE', K.due, '-inf', fmt(now), 'LIMIT', 0, A.limit)
