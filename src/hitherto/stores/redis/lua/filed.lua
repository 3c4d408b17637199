-- What a conversation is filed under: {there, a record, a lease, pending, dead letters, its wake_at, now}, each
-- 1 or 0. One that has gone by itself leaves the index here.

if not raw then
  redis.call('SREM', KEYS[6], member)
  return {0}
end
return {
  1, c[RECORD] and 1 or 0, c[OWNER] and 1 or 0, #c[INBOX] > 0 and 1 or 0, #c[DEAD] > 0 and 1 or 0,
}
