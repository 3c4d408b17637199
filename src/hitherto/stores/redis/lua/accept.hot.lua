-- Take an event in, the common case written out: nobody holds the conversation and nothing waits in it.
-- P[6]: owner, P[7]: event id or false, P[8]: what a free conversation's entry gathers,
-- or false when the policy must be asked, P[9]: lease, P[10]: ops_limit, P[11]: ops_age; ARGV[3]: the policy, packed, ARGV[4]: the payload.

if P[8] and #c[INBOX] == 0 and not (c[OWNER] and c[DEADLINE] > now)
  and not may_be_known
  and not (P[7] and c[SEEN_COUNT] > 0 and redis.call('HGET', KEYS[3], '.' .. P[7]))
then
  local seq, epoch, deadline = c[NEXT], c[EPOCH] + 1, now + P[9]
  local entry = {seq, P[7], now, 1, true, 0, false, false, P[8], false}
  c[VERSION], c[EPOCH], c[OWNER], c[DEADLINE] = raw and c[VERSION] + 1 or first_version(), epoch, P[6], deadline
  c[NEXT], c[INBOX][1], c[TOUCHED] = seq + 1, entry, now
  if op then
    local line = op .. '\t' .. now_text .. ' granted ' .. epoch .. ' ' .. seq .. ' ' .. seq
    if redis.call('RPUSH', KEYS[8], line) > 2 * P[10] then redis.call('LTRIM', KEYS[8], -P[10], -1) end
    c[OPS_LAST] = now
    if by_server and c[OPS_KEPT] < now + P[11] then
      c[OPS_KEPT] = now + 2 * P[11]
      redis.call('PEXPIRE', KEYS[8], math.ceil(2000 * P[11]))
    end
  end
  if #ARGV[4] <= 512 then
    c[SLOT_SEQ], c[SLOT] = seq, ARGV[4]
  else
    redis.call('HSET', KEYS[4], seq, ARGV[4])
  end
  if indexed then
    c[DUE] = deadline
    redis.call('ZADD', KEYS[5], deadline, member)
  end
  redis.call('SET', KEYS[1], cmsgpack.pack(c))
  if not raw then redis.call('ZADD', KEYS[6], 0, member) end
  local live = c[RECORD] and not (c[EXPIRES] and c[EXPIRES] <= now)
  return {
    cmsgpack.pack({
      'granted', seq, 0, deadline, now, false, epoch, deadline, false, {entry},
      live and c[RECORD], c[FLOW], c[STATE], c[EXPIRES],
    }),
    live and redis.call('HGETALL', KEYS[2]) or {},
  }
end
