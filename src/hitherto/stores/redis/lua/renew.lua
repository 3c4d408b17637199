-- Push the deadline of the claim P[6], if it is still good: 1, or 0 when it is lost.

local claim = P[6]
local mine = held(claim)
if not mine then return 0 end
local deadline = now + terms[LEASE]
if claim[3] then
  mine[1][LONE] = deadline
else
  c[DEADLINE] = deadline
end
save()
return 1
