#!lua flags=no-writes
-- One stretch of a user's sessions, latest change first, and the time it was looked at.
-- KEYS sessions
-- ARGV upTo skip limit
return { string.format('%.0f', now), redis.call('ZREVRANGEBYSCORE', K.sessions, A.upTo, '-inf', 'WITHSCORES', 'LIMIT', A.skip, A.limit) }
