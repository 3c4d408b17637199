-- Give a free conversation with something due to P[6], its new owner.

local repeated = replayed()
if repeated then return repeated end
if not raw or is_busy() then return reply('nothing') end
local dropped, leased = {}, c[OWNER]
local grant = taken(P[6], dropped)
if grant then return done('granted', -1, grant, some(dropped)) end
if #dropped > 0 or leased then return done('nothing', -1, nil, some(dropped)) end
again()
return reply('nothing')
