-- End a turn, the common case written out: one event, done, nothing waits behind it and no limit is reached.
-- P[6]: the epoch of a claim of one entry, or false, P[7]: verdict, P[8]: delay,
-- P[9]: error, P[10]: keep, P[11]: whether there is a patch; P[12]: moved, P[13]: flow, P[14]: state, P[15]: version,
-- P[16]: bytes of what is set, P[17]: cleared, P[18]: removed keys or false, P[19]: the entry's number,
-- P[20]: ops_limit, P[21]: ops_age, P[22]: seen_limit, P[23]: seen_age, P[24]: whether a record expires,
-- P[25]: the most bytes of a record; ARGV[3]: the claim, packed, ARGV[4..]: what is set, key and value.

local mine = c[INBOX][1]
if P[6] and P[7] == 'done' and c[OWNER] and c[EPOCH] == P[6]
  and mine and #c[INBOX] == 1 and mine[CLAIMED] and mine[SEQ] == P[19]
  and (c[RECORD] or P[11]) and not c[EXPIRES]
  and not (P[11] and (P[17] or P[18] or P[24] or c[SIZE] + P[16] > P[25] or #ARGV > 1000))
  and (c[SEEN_COUNT] == 0 or (c[SEEN_COUNT] < P[22] and c[SEEN_FROM] > now - P[23]))
  and not may_be_known
then
  local seq, id = mine[SEQ], mine[ID]
  if P[11] then
    if not c[RECORD] then c[RECORD] = 1 end
    if P[12] then c[FLOW], c[STATE], c[RECORD] = P[13], P[14], P[15] end
    if #ARGV > 3 then
      c[SIZE] = c[SIZE] + P[16]
      redis.call('HSET', KEYS[2], unpack(ARGV, 4))
    end
  end
  if c[SLOT_SEQ] == seq then
    c[SLOT_SEQ], c[SLOT] = 0, ''
  else
    redis.call('HDEL', KEYS[4], seq)
  end
  if id then
    local number = string.format('%d', c[SEEN_NEXT])
    local added = redis.call('HSET', KEYS[3], '.' .. id, number .. ' ' .. now_text, number, now_text .. ' ' .. id)
    if c[SEEN_COUNT] == 0 then c[SEEN_FROM], c[SEEN_LAST] = now, now end
    if now > c[SEEN_LAST] then c[SEEN_LAST] = now end
    c[SEEN_NEXT], c[SEEN_COUNT] = c[SEEN_NEXT] + 1, c[SEEN_COUNT] + added - 1
    if by_server and c[SEEN_KEPT] < now + P[23] then
      c[SEEN_KEPT] = now + 2 * P[23]
      redis.call('PEXPIRE', KEYS[3], math.ceil(2000 * P[23]))
    end
  end
  if op then
    local line = op .. '\t' .. now_text .. ' committed 0 -1 '
    if redis.call('RPUSH', KEYS[8], line) > 2 * P[20] then redis.call('LTRIM', KEYS[8], -P[20], -1) end
    c[OPS_LAST] = now
    if by_server and c[OPS_KEPT] < now + P[21] then
      c[OPS_KEPT] = now + 2 * P[21]
      redis.call('PEXPIRE', KEYS[8], math.ceil(2000 * P[21]))
    end
  end
  if c[DUE] then
    redis.call('ZREM', KEYS[5], member)
    c[DUE] = false
  end
  c[VERSION], c[OWNER], c[DEADLINE], c[INBOX], c[TOUCHED] = c[VERSION] + 1, false, 0, {}, now
  redis.call('SET', KEYS[1], cmsgpack.pack(c))
  return cmsgpack.pack({'committed', -1, 0, false, now, false})
end
