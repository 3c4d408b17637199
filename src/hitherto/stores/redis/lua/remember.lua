-- Write the record: what the FSM storage contract does. P[6]: 'state', 'data', 'update' or 'clear';
-- P[7]: flow, P[8]: state, P[9]: version; P[10]: bytes of what is set; ARGV[4..]: what is set, key and value.

local how = P[6]

local function answer()
  if not is_live() then return cmsgpack.pack({now, false}) end
  return {cmsgpack.pack({now, c[RECORD], c[FLOW], c[STATE], c[EXPIRES]}), redis.call('HGETALL', KEYS[2])}
end

if may_be_known and noted(op) then return answer() end
if how == 'clear' then
  if not c[RECORD] then return answer() end
  drop_record()
else
  local kept = how ~= 'state' and is_live()
  local flow, state, version, expires = c[FLOW], c[STATE], c[RECORD], c[EXPIRES]
  if how ~= 'update' or not kept then drop_record() end
  if how == 'state' then
    c[FLOW], c[STATE], c[RECORD] = P[7], P[8], P[9]
  elseif kept then
    c[FLOW], c[STATE], c[RECORD], c[EXPIRES] = flow, state, version, expires
  else
    c[RECORD] = 1
  end
  data_changed = true
  if #ARGV > 3 then set_from, set_to = 4, #ARGV end
  local refusal = check_size(P[10])
  if refusal then return refusal end
end
if op then remember_op('committed') end
save()
return answer()
