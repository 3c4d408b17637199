-- Give the turn of the claim P[6] back unrun.

local claim = P[6]
local repeated = replayed()
if repeated then return repeated end
local mine = held(claim)
if not mine then return reply('fenced') end
for _, e in ipairs(mine) do
  e[CLAIMED], e[LONE], e[ATTEMPTS] = false, false, math.max(e[ATTEMPTS] - 1, 0)
end
if not claim[3] then c[OWNER], c[DEADLINE] = false, 0 end
return done('released')
