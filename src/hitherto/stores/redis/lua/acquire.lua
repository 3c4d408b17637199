-- Take the lease of a free conversation for P[6], without an event.

local repeated = replayed()
if repeated then return repeated end
if is_busy() then return reply('busy') end
unclaim()
return done('granted', -1, take_lease(P[6], {}))
