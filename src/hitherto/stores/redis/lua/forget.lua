-- Erase everything; the epoch goes up, so that whoever runs it cannot bring it back.

if not raw then return 0 end
local empty = {0, 0, false, 0, 1, false, false, false, false, 0, 0, {}, {}, 0, '', false, 0, 0, 1, 1, 0, 0, 0, 0, 0}
empty[VERSION], empty[EPOCH], empty[NEXT], empty[DUE] = c[VERSION], c[EPOCH] + 1, c[NEXT], c[DUE]
c = empty
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[8])
save()
return 1
