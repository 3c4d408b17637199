-- The beginning of every script: its parameters, the time, and the conversation as it is.
--
-- KEYS: 1 the conversation, 2 its data, 3 its window of seen ids, 4 its payloads and dead letters,
--       5 the shard's conversations by wake_at, 6 the shard's conversations, 7 those with dead letters,
--       8 the conversation's results of operations.
-- ARGV: 1 {now or false, operation id or false, name in the indexes, whether it is indexed, whether this
--       may be a repeat, ...}, 2 the terms, both packed, 3 and on what the operation says.
--
-- Names of places: scripts.py puts the numbers in, because a local that functions capture makes each of them
-- slower to make. The conversation c, its entries, and the terms:

local VERSION, EPOCH, OWNER, DEADLINE, NEXT = 1, 2, 3, 4, 5
local FLOW, STATE, RECORD, EXPIRES, SIZE, TOUCHED = 6, 7, 8, 9, 10, 11
local INBOX, DEAD, SLOT_SEQ, SLOT, DUE = 12, 13, 14, 15, 16
local OPS_LAST, OPS_KEPT = 17, 18
local SEEN_FIRST, SEEN_NEXT, SEEN_COUNT, SEEN_FROM, SEEN_LAST, SEEN_KEPT = 19, 20, 21, 22, 23, 24
local LATE = 25

local SEQ, ID, ACCEPTED, ATTEMPTS, CLAIMED, NOT_BEFORE, ENDS, LONE, GATHER, BLOCKS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10

local LEASE, MAX_ATTEMPTS, SEEN_LIMIT, SEEN_AGE, OPS_LIMIT = 1, 2, 3, 4, 5
local OPS_AGE, DEAD_LIMIT, RECORD_TTL, TOMBSTONE, IN_ORDER, MAX_BYTES = 6, 7, 8, 9, 10, 11

local P = cmsgpack.unpack(ARGV[1])
local now, op, member, indexed = P[1], P[2], P[3], P[4]
local by_server, now_text = not now, nil
if by_server then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
  now_text = #time[2] == 6 and time[1] .. '.' .. time[2] or string.format('%s.%06d', time[1], time[2])
else
  now_text = string.format('%.17g', now)
end

local raw = redis.call('GET', KEYS[1])
local c
if raw then
  c = cmsgpack.unpack(raw)
else
  c = {0, 0, false, 0, 1, false, false, false, false, 0, 0, {}, {}, 0, '', false, 0, 0, 1, 1, 0, 0, 0, 0, 0}
end

-- Whether this operation may have been done before: it is a repeat, or a repeat was done not long ago, and this
-- could be the attempt that it repeated, late.
local may_be_known = op and (P[5] or c[LATE] > now)

local function first_version()
  return math.max(1, math.floor(now * 10000))
end
