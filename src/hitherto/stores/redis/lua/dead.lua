-- Put the dead letter with number P[6] back in the inbox (P[7] is true), or throw it away.

local seq, retried = P[6], P[7]
local repeated = replayed()
if repeated then return repeated end
local place
for index = 1, #c[DEAD], 2 do
  if c[DEAD][index] == seq then place = index end
end
if not place then return reply('nothing') end
table.remove(c[DEAD], place)
table.remove(c[DEAD], place)
local number = string.format('%d', seq)
if retried then
  local letter = cmsgpack.unpack(redis.call('HGET', KEYS[4], 'x' .. number))
  local entry = {seq, letter[2], letter[3], 0, false, 0, false, false, '', false}
  local at = 1
  while c[INBOX][at] and c[INBOX][at][SEQ] <= seq do at = at + 1 end
  table.insert(c[INBOX], at, entry)
  keep_payload(seq, redis.call('HGET', KEYS[4], 'y' .. number))
  unmarked = letter[2]
end
cut = {'x' .. number, 'y' .. number}
return done(retried and 'queued' or 'dropped', seq)
