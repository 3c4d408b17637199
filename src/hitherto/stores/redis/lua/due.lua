-- At most ARGV[2] conversations of a shard (KEYS[1]) that somebody must look at now, each with when it was to be;
-- ARGV[1]: now, or nothing.

local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.17g', time[1] + time[2] / 1000000)
end
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[2])
