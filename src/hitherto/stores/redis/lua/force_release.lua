-- Free a stuck conversation, and fence whoever held it.

local repeated = replayed()
if repeated then return repeated end
local held_up = c[OWNER]
for _, e in ipairs(c[INBOX]) do held_up = held_up or e[LONE] end
if not held_up then return reply('nothing') end
for _, e in ipairs(c[INBOX]) do e[CLAIMED], e[LONE] = false, false end
c[EPOCH], c[OWNER], c[DEADLINE] = c[EPOCH] + 1, false, 0
return done('released')
