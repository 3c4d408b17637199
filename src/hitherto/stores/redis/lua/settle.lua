-- End a turn. The claim (packed) is {epoch, seqs, lone, attempt}.

local claim, verdict, delay, reason, keep = cmsgpack.unpack(ARGV[3]), P[7], P[8], P[9], P[10]
local dropped = {}

local function apply()
  local cleared, moved = P[17], P[12]
  if cleared or not is_live() then
    drop_record()
    if cleared and not moved and #ARGV == 3 then return nil end
    c[RECORD] = 1
  end
  data_changed = true
  if #ARGV > 3 then set_from, set_to = 4, #ARGV end
  if P[18] then removed = P[18] end
  local refusal = check_size(P[16])
  if refusal then return refusal end
  if moved then c[FLOW], c[STATE], c[RECORD] = P[13], P[14], P[15] end
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
if P[11] then
  local refusal = apply()
  if refusal then return refusal end
end
settled(mine)
if claim[3] then return done('committed', -1, nil, some(dropped)) end
expire_entries(dropped)
local grant = handed_on()
return done('committed', -1, grant, some(dropped))
