-- Put a whole conversation in place of the version P[6]: 1, or 0 when it is another. P[7]: the conversation;
-- P[8], P[9], P[10]: how many words of data, seen ids and payloads follow in ARGV[4..].

if c[VERSION] ~= P[6] then return 0 end
local due, late = c[DUE], c[LATE]
c = P[7]
c[DUE], c[LATE] = due, late
if raw then redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[8]) end
local from = 4
for place = 2, 4 do
  local count = P[6 + place]
  for start = from, from + count - 1, 1000 do
    redis.call('HSET', KEYS[place], unpack(ARGV, start, math.min(start + 999, from + count - 1)))
  end
  from = from + count
end
if from <= #ARGV then
  redis.call('RPUSH', KEYS[8], unpack(ARGV, from))
  c[OPS_LAST] = now
  if by_server then redis.call('PEXPIRE', KEYS[8], math.ceil(2000 * terms[OPS_AGE])) end
end
if by_server and c[EXPIRES] then
  redis.call('PEXPIRE', KEYS[2], math.max(math.ceil((c[EXPIRES] - now) * 1000), 0) + 1000)
end
if by_server and c[SEEN_COUNT] > 0 then
  c[SEEN_KEPT] = now + 2 * terms[SEEN_AGE]
  redis.call('PEXPIRE', KEYS[3], math.ceil(2000 * terms[SEEN_AGE]))
end
write_indexes()
write_conversation()
return 1
