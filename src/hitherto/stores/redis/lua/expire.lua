-- Tidy: an expired record, old seen ids and results, a dead lease with nothing behind it; remove what is void.
-- 1 when something changed.

if not raw then return redis.call('ZREM', KEYS[6], member) end
local changed = false
terms[SEEN_LIMIT] = math.huge
if c[RECORD] and not is_live() then
  drop_record()
  changed = true
end
if c[SEEN_COUNT] > 0 and c[SEEN_FROM] <= now - terms[SEEN_AGE] then
  marks, changed = {}, true
end
if c[OPS_LAST] > 0 and c[OPS_LAST] <= now - terms[OPS_AGE] then
  redis.call('DEL', KEYS[8])
  c[OPS_LAST], c[OPS_KEPT], changed = 0, 0, true
end
if c[OWNER] and c[DEADLINE] <= now and #c[INBOX] == 0 then
  c[EPOCH], c[OWNER], c[DEADLINE], changed = c[EPOCH] + 1, false, 0, true
end
if changed then save('tidied') end
if is_bare() and (c[EPOCH] == 0 or c[TOUCHED] <= now - terms[TOMBSTONE]) then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[6], member)
  changed = true
end
return changed and 1 or 0
