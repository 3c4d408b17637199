-- Take an event in. A policy (packed) is {kind, limit, on_full, expires or false, window, gather}; by flow it is
-- {'by_flow', default, {flow = policy}}.

local owner, id, overlap = P[6], P[7], cmsgpack.unpack(ARGV[3])
local dropped = {}

local function answer(status)
  return reply(status, -1)
end

local function refused(status)
  if #dropped > 0 then return done(status, -1, nil, dropped) end
  return answer(status)
end

local function append(not_before, ends, gather)
  local seq, inbox = c[NEXT], c[INBOX]
  inbox[#inbox + 1] = {seq, id, now, 0, false, not_before, ends, false, gather, false}
  c[NEXT] = seq + 1
  keep_payload(seq, ARGV[4])
  return seq
end

local function is_seen()
  local place = redis.call('HGET', KEYS[3], '.' .. id)
  return place and tonumber(string.match(place, '%S+$')) > now - terms[SEEN_AGE]
end

local function redelivered(entry)
  if is_busy() or (entry[LONE] and entry[LONE] > now) then return answer('duplicate') end
  local seq, pulled = entry[SEQ], entry[ATTEMPTS] > 0 and entry[NOT_BEFORE] > now and not entry[CLAIMED]
  if pulled then entry[NOT_BEFORE] = now end
  local grant = taken(owner, dropped)
  if not grant then
    again()
    if pulled then
      for _, e in ipairs(c[INBOX]) do
        if e[SEQ] == seq then e[NOT_BEFORE] = now end
      end
      save('pulled')
    end
    return answer('duplicate')
  end
  for _, e in ipairs(grant.entries) do
    if e[SEQ] == seq then return done('granted', seq, grant, some(dropped)) end
  end
  return done('duplicate', -1, grant, some(dropped))
end

local function policy_of()
  if overlap[1] ~= 'by_flow' then return overlap end
  return is_live() and c[FLOW] and overlap[3][c[FLOW]] or overlap[2]
end

local function is_window_open(policy)
  local kind = policy[1]
  if kind == 'burst' and policy[6] and policy[5] > 0 then return true end
  if kind ~= 'burst' and kind ~= 'debounce' then return false end
  for _, e in ipairs(c[INBOX]) do
    if e[GATHER] == kind and e[NOT_BEFORE] > now and e[ATTEMPTS] == 0 then return true end
  end
  return false
end

local function is_blocked()
  for _, e in ipairs(c[INBOX]) do
    if not (e[LONE] and e[LONE] > now) then
      if e[NOT_BEFORE] <= now then return false end
      if e[BLOCKS] then return true end
    end
  end
  return false
end

local function accept_lone(policy)
  local running = 0
  for _, e in ipairs(c[INBOX]) do
    if e[LONE] and e[LONE] > now then running = running + 1 end
  end
  if running >= policy[2] then return refused('busy') end
  local seq, ends = append(0, false, ''), now + terms[LEASE]
  local entry = c[INBOX][#c[INBOX]]
  entry[ATTEMPTS], entry[LONE] = 1, ends
  local grant = {epoch = c[EPOCH], entries = {entry}, deadline = ends, lone = true}
  return done('granted', seq, grant, some(dropped), seq)
end

local function accept_free(policy)
  unclaim()
  local seq = append(0, false, policy[1] == 'burst' and 'burst' or '')
  local grant = grant_next(owner, dropped)
  local own = grant and grant.entries[#grant.entries][SEQ] == seq
  return done(own and 'granted' or 'queued', seq, grant, some(dropped), seq)
end

local function enqueue(policy, waiting)
  local not_before, ends, gather = 0, false, ''
  if policy[1] == 'burst' then
    gather = 'burst'
    if policy[5] > 0 then
      not_before = now + policy[5]
      for _, e in ipairs(waiting) do
        if e[GATHER] == 'burst' and e[ATTEMPTS] == 0 then
          not_before = e[NOT_BEFORE]
          break
        end
      end
    end
  elseif policy[1] == 'queue' and policy[4] then
    ends = now + policy[4]
  end
  return done('queued', append(not_before, ends, gather), nil, some(dropped))
end

local function overflow(policy, waiting)
  local on_full = policy[1] == 'queue' and policy[3] or 'reject'
  if on_full == 'reject' then return refused('full') end
  if on_full == 'drop_newest' then
    mark(id)
    dropped[#dropped + 1] = {id, 'newest'}
    return done('dropped', -1, nil, dropped)
  end
  give_up({waiting[1]}, 'oldest', dropped)
  table.remove(waiting, 1)
  return enqueue(policy, waiting)
end

local function debounce(policy, waiting)
  local replaced = {}
  for _, e in ipairs(waiting) do
    if e[GATHER] == 'debounce' then replaced[#replaced + 1] = e end
  end
  if #replaced > 0 then give_up(replaced, 'superseded', dropped) end
  return done('debounced', append(now + policy[5], false, 'debounce'), nil, some(dropped))
end

local function accept_busy(policy)
  if policy[1] == 'reject' then return refused('busy') end
  local waiting = {}
  for _, e in ipairs(c[INBOX]) do
    if is_waiting(e) then waiting[#waiting + 1] = e end
  end
  if policy[1] == 'debounce' then return debounce(policy, waiting) end
  if #waiting >= policy[2] then return overflow(policy, waiting) end
  return enqueue(policy, waiting)
end

local repeated = replayed()
if repeated then return repeated end
if id then
  if is_seen() then return answer('duplicate') end
  for _, e in ipairs(c[INBOX]) do
    if e[ID] == id then return redelivered(e) end
  end
end
expire_entries(dropped)
local policy = policy_of()
if policy[1] == 'concurrent' then return accept_lone(policy) end
if is_busy() or is_window_open(policy) or is_blocked() then return accept_busy(policy) end
return accept_free(policy)
