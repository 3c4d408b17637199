-- A conversation as lists show it: {version, flow, state, whether there is a record, touched, pending, dead, lease
-- until or false, wake_at or false}, packed; nothing for one that has gone by itself, which leaves the index here.

if not raw then
  redis.call('ZREM', KEYS[6], member)
  return false
end
return cmsgpack.pack({
  c[VERSION], c[FLOW], c[STATE], c[RECORD] and true or false, c[TOUCHED], #c[INBOX], #c[DEAD] / 2,
  c[OWNER] and c[DEADLINE], wake_at() or false,
})
