-- End a turn. P[6]: the claim, P[7]: verdict, P[8]: delay, P[9]: error, P[10]: keep, P[11]: the patch or false,
-- {cleared, moved, flow, state, version, removed keys, bytes of what is set}; ARGV[2..]: what is set, key and value.

local claim, verdict, delay, reason, keep, patch = P[6], P[7], P[8], P[9], P[10], P[11]
local dropped = {}

local function apply()
  local cleared, moved = patch[1], patch[2]
  if cleared or not is_live() then
    drop_record()
    if cleared and not moved and #ARGV == 1 then return nil end
    c[RECORD] = 1
  end
  data_changed = true
  if #ARGV > 1 then set_from, set_to = 2, #ARGV end
  if #patch[6] > 0 then removed = patch[6] end
  local refusal = check_size(patch[7])
  if refusal then return refusal end
  if moved then c[FLOW], c[STATE], c[RECORD] = patch[3], patch[4], patch[5] end
  if terms[RECORD_TTL] then c[EXPIRES] = now + terms[RECORD_TTL] end
  return nil
end

local function settled(mine)
  if #mine == 0 then return end
  if verdict == 'done' then
    give_up(mine)
    return
  end
  local not_before, spent = delay > 0 and now + delay or 0, {}
  for _, e in ipairs(mine) do
    if verdict == 'dead' or e[ATTEMPTS] >= terms[MAX_ATTEMPTS] then
      spent[#spent + 1] = e
    else
      e[CLAIMED], e[LONE], e[NOT_BEFORE], e[ENDS], e[BLOCKS] = false, false, not_before, false, terms[IN_ORDER]
    end
  end
  bury(spent, reason, dropped)
end

local function handed_on()
  local owner = c[OWNER]
  local claimed = keep and owner and #c[INBOX] > 0 and claim_next(dropped) or {}
  if #claimed == 0 then
    c[OWNER], c[DEADLINE] = false, 0
    return nil
  end
  c[DEADLINE] = now + terms[LEASE]
  return {epoch = c[EPOCH], entries = claimed, deadline = c[DEADLINE]}
end

local repeated = replayed()
if repeated then return repeated end
local mine = held(claim)
if not mine then return reply('fenced', -1) end
if patch then
  local refusal = apply()
  if refusal then return refusal end
end
settled(mine)
if claim[3] then return done('committed', -1, nil, some(dropped)) end
expire_entries(dropped)
local grant = handed_on()
return done('committed', -1, grant, some(dropped))
