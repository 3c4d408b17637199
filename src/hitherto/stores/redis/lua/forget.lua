-- Erase everything; the epoch goes up, so that whoever runs it cannot bring it back.

if not raw then return 0 end
local version, epoch, following = c[VERSION], c[EPOCH], c[NEXT]
local due = c[DUE]
raw = nil
again()
raw, had_dead = '', true
c[VERSION], c[EPOCH], c[NEXT], c[DUE] = version, epoch + 1, following, due
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
save()
return 1
