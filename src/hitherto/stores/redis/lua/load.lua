-- Everything that is kept of a conversation.

local slot = c[SLOT]
c[SLOT] = ''
return {
  cmsgpack.pack({now, raw and true or false, c}), slot, redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3]),
  redis.call('HGETALL', KEYS[4]), redis.call('LRANGE', KEYS[8], -terms[OPS_LIMIT], -1),
}
