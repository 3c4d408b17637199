-- The record, unless it has expired.

if not is_live() then return cmsgpack.pack({now, false}) end
return {cmsgpack.pack({now, c[RECORD], c[FLOW], c[STATE], c[EXPIRES]}), redis.call('HGETALL', KEYS[2])}
