-- What every operation on one conversation shares.
--
-- Functions change the conversation in memory only and note what else is to be written; save() writes
-- everything. Nothing is written before that, so a refusal leaves no trace. Statuses and rules are those of
-- hitherto/protocol.py, function by function.

local terms = cmsgpack.unpack(ARGV[2])
local had_dead, could_expire = #c[DEAD] > 0, c[EXPIRES]
local data_changed, reset_data, set_from, set_to, removed
local put, cut, marks, unmarked
local wake

-- as it was stored, with nothing to be written
local function again()
  c = cmsgpack.unpack(raw)
  data_changed, reset_data, set_from, set_to, removed = nil, nil, nil, nil, nil
  put, cut, marks, unmarked = nil, nil, nil, nil
end

-- questions

local function is_busy()
  return c[OWNER] and c[DEADLINE] > now
end

local function is_waiting(e)
  return not e[CLAIMED] and not e[LONE]
end

local function depth()
  local count = 0
  for _, e in ipairs(c[INBOX]) do
    if is_waiting(e) then count = count + 1 end
  end
  return count
end

local function wake_at()
  if c[OWNER] then return c[DEADLINE] end
  local at = false
  for _, e in ipairs(c[INBOX]) do
    local when = e[LONE] or e[NOT_BEFORE]
    if not at or when < at then at = when end
    if e[BLOCKS] then break end
  end
  return at
end

local function is_live()
  return c[RECORD] and not (c[EXPIRES] and c[EXPIRES] <= now)
end

local function payload_of(seq)
  if c[SLOT_SEQ] == seq then return c[SLOT] end
  return redis.call('HGET', KEYS[4], seq)
end

-- what is to be written

local function keep_payload(seq, payload)
  if c[SLOT_SEQ] == 0 and #payload <= 512 then
    c[SLOT_SEQ], c[SLOT] = seq, payload
  else
    put = put or {}
    put[#put + 1] = seq
    put[#put + 1] = payload
  end
end

local function let_go(seq)
  if c[SLOT_SEQ] == seq then
    c[SLOT_SEQ], c[SLOT] = 0, ''
  else
    cut = cut or {}
    cut[#cut + 1] = seq
  end
end

local function mark(id)
  marks = marks or {}
  marks[#marks + 1] = id
end

local function chunked(command, key, words)
  for start = 1, #words, 1000 do
    redis.call(command, key, unpack(words, start, math.min(start + 999, #words)))
  end
end

local function write_data()
  if reset_data then redis.call('DEL', KEYS[2]) end
  if set_from then
    for start = set_from, set_to, 1000 do
      redis.call('HSET', KEYS[2], unpack(ARGV, start, math.min(start + 999, set_to)))
    end
  end
  if removed then chunked('HDEL', KEYS[2], removed) end
  if c[EXPIRES] and by_server then
    redis.call('PEXPIRE', KEYS[2], math.max(math.ceil((c[EXPIRES] - now) * 1000), 0) + 1000)
  elseif could_expire and not reset_data then
    redis.call('PERSIST', KEYS[2])
  end
end

-- the window: '.id' -> 'number time' and, for the order, number -> 'time id'; a number whose id has a
-- newer one is stale

local function evict()
  local horizon = now - terms[SEEN_AGE]
  while c[SEEN_FIRST] < c[SEEN_NEXT] do
    if c[SEEN_COUNT] <= terms[SEEN_LIMIT] and c[SEEN_FROM] > horizon then return end
    local first = string.format('%d', c[SEEN_FIRST])
    local place = redis.call('HGET', KEYS[3], first)
    if place then
      local at, id = string.match(place, '^(%S+) (.*)$')
      local own = redis.call('HGET', KEYS[3], '.' .. id)
      local stale = not own or string.match(own, '^%S+') ~= first
      c[SEEN_FROM] = tonumber(at)
      if not stale and c[SEEN_COUNT] <= terms[SEEN_LIMIT] and c[SEEN_FROM] > horizon then return end
      redis.call('HDEL', KEYS[3], first)
      if not stale then
        redis.call('HDEL', KEYS[3], '.' .. id)
        c[SEEN_COUNT] = c[SEEN_COUNT] - 1
      end
    end
    c[SEEN_FIRST] = c[SEEN_FIRST] + 1
    if c[SEEN_FIRST] < c[SEEN_NEXT] then
      local after = redis.call('HGET', KEYS[3], string.format('%d', c[SEEN_FIRST]))
      c[SEEN_FROM] = after and tonumber(string.match(after, '^%S+')) or 0
    end
  end
  c[SEEN_FIRST], c[SEEN_NEXT], c[SEEN_COUNT], c[SEEN_KEPT] = 1, 1, 0, 0
end

local function write_marks()
  if c[SEEN_COUNT] > 0 and c[SEEN_LAST] <= now - terms[SEEN_AGE] then
    redis.call('DEL', KEYS[3])
    c[SEEN_FIRST], c[SEEN_NEXT], c[SEEN_COUNT], c[SEEN_KEPT] = 1, 1, 0, 0
  end
  local words = {}
  for _, id in ipairs(marks) do
    if id then
      local number = string.format('%d', c[SEEN_NEXT])
      local at = #words
      words[at + 1], words[at + 2] = '.' .. id, number .. ' ' .. now_text
      words[at + 3], words[at + 4] = number, now_text .. ' ' .. id
      c[SEEN_NEXT] = c[SEEN_NEXT] + 1
    end
  end
  if #words > 0 then
    if c[SEEN_COUNT] == 0 then c[SEEN_FROM], c[SEEN_LAST] = now, now end
    for start = 1, #words, 1000 do
      local stop = math.min(start + 999, #words)
      local added = redis.call('HSET', KEYS[3], unpack(words, start, stop))
      c[SEEN_COUNT] = c[SEEN_COUNT] + added - (stop - start + 1) / 4
    end
    if now > c[SEEN_LAST] then c[SEEN_LAST] = now end
    if by_server and c[SEEN_KEPT] < now + terms[SEEN_AGE] then
      c[SEEN_KEPT] = now + 2 * terms[SEEN_AGE]
      redis.call('PEXPIRE', KEYS[3], math.ceil(2 * terms[SEEN_AGE] * 1000))
    end
  end
  if c[SEEN_COUNT] > terms[SEEN_LIMIT] or c[SEEN_FROM] <= now - terms[SEEN_AGE] then evict() end
end

-- how long what is idle is kept: a record as long as it lives, the epoch long enough to fence the late

local function lifetime()
  if not by_server or c[OWNER] or #c[INBOX] > 0 or #c[DEAD] > 0 then return nil end
  if c[RECORD] and not c[EXPIRES] then return nil end
  local seconds = terms[OPS_AGE]
  if c[EPOCH] > 0 and terms[TOMBSTONE] > seconds then seconds = terms[TOMBSTONE] end
  if c[SEEN_COUNT] > 0 and c[SEEN_KEPT] - now > seconds then seconds = c[SEEN_KEPT] - now end
  if c[RECORD] then seconds = seconds + math.max(c[EXPIRES] - now, 0) end
  return math.ceil(seconds * 1000) + 1000
end

local function is_bare()
  return not c[RECORD] and not c[OWNER] and #c[INBOX] == 0 and c[SEEN_COUNT] == 0 and c[OPS_LAST] == 0 and #c[DEAD] == 0
end

local function write_conversation()
  if c[EPOCH] == 0 and is_bare() then
    if raw then
      redis.call('DEL', KEYS[1])
      redis.call('ZREM', KEYS[6], member)
    end
    return
  end
  local kept = lifetime()
  if kept then
    redis.call('SET', KEYS[1], cmsgpack.pack(c), 'PX', kept)
  else
    redis.call('SET', KEYS[1], cmsgpack.pack(c))
  end
  if not raw then redis.call('ZADD', KEYS[6], 0, member) end
end

local function write_indexes()
  wake = wake_at()
  if not indexed then return end
  if wake ~= c[DUE] then
    if wake then
      redis.call('ZADD', KEYS[5], wake, member)
    else
      redis.call('ZREM', KEYS[5], member)
    end
    c[DUE] = wake
  end
  if had_dead ~= (#c[DEAD] > 0) then redis.call(had_dead and 'SREM' or 'SADD', KEYS[7], member) end
end

-- a conversation begins at a version of its own time: the one before it at this place may have been dropped, and
-- whoever still holds a version of that one must not succeed with it; a change is one version on; 'tidied' nobody touched it, 'pulled' only brought an entry forward
local function save(how)
  if not raw then
    c[VERSION] = first_version()
  elseif how ~= 'pulled' then
    c[VERSION] = c[VERSION] + 1
  end
  if not how then c[TOUCHED] = now end
  if data_changed then write_data() end
  if put then chunked('HSET', KEYS[4], put) end
  if cut then chunked('HDEL', KEYS[4], cut) end
  if unmarked then c[SEEN_COUNT] = c[SEEN_COUNT] - redis.call('HDEL', KEYS[3], '.' .. unmarked) end
  if marks then write_marks() end
  write_indexes()
  write_conversation()
end

-- answers: a packed head and, for a grant, the data and the payloads that the caller has not

local function reply(status, seq, grant, dropped, own)
  local head = {status, seq or -1, depth(), wake_at(), now, dropped or false}
  if not grant then return cmsgpack.pack(head) end
  local there = grant.as_kept and c[RECORD] or is_live()
  head[7], head[8], head[9], head[10] = grant.epoch, grant.deadline, grant.lone or false, grant.entries
  head[11] = there and c[RECORD] or false
  head[12], head[13], head[14] = c[FLOW], c[STATE], c[EXPIRES]
  local answer = {cmsgpack.pack(head), there and redis.call('HGETALL', KEYS[2]) or {}}
  for _, e in ipairs(grant.entries) do
    if e[SEQ] ~= own then answer[#answer + 1] = payload_of(e[SEQ]) end
  end
  return answer
end

-- results: 'op<tab>time status epoch seq seqs', the newest last; a few more than the limit lie there
local function remember_op(status, seq, grant)
  local seqs, epoch = '', 0
  if grant then
    local numbers = {}
    for place, e in ipairs(grant.entries) do numbers[place] = e[SEQ] end
    seqs, epoch = table.concat(numbers, ','), grant.lone and -1 or grant.epoch
  end
  local line = string.format('%s\t%s %s %d %d %s', op, now_text, status, epoch, seq or -1, seqs)
  local length = redis.call('RPUSH', KEYS[8], line)
  if length > 2 * terms[OPS_LIMIT] then redis.call('LTRIM', KEYS[8], -terms[OPS_LIMIT], -1) end
  c[OPS_LAST] = now
  if P[5] then c[LATE] = now + terms[OPS_AGE] end
  if by_server and c[OPS_KEPT] < now + terms[OPS_AGE] then
    c[OPS_KEPT] = now + 2 * terms[OPS_AGE]
    redis.call('PEXPIRE', KEYS[8], math.ceil(2000 * terms[OPS_AGE]))
  end
end

-- the result of an operation, as noted, or nil
local function noted(id)
  local start, horizon = id .. '\t', c[OPS_LAST] - terms[OPS_AGE]
  for _, line in ipairs(redis.call('LRANGE', KEYS[8], -terms[OPS_LIMIT], -1)) do
    if string.sub(line, 1, #start) == start then
      local at, rest = string.match(line, '(%S+) (.*)$', #start + 1)
      return tonumber(at) > horizon and rest or nil
    end
  end
  return nil
end

local function done(status, seq, grant, dropped, own)
  if op then remember_op(status, seq, grant) end
  save()
  return reply(status, seq, grant, dropped, own)
end

local function regranted(epoch, seqs)
  local mine, entries, deadline = {}, {}, 0
  for seq in string.gmatch(seqs, '%d+') do mine[tonumber(seq)] = true end
  if epoch < 0 then
    for _, e in ipairs(c[INBOX]) do
      if mine[e[SEQ]] and e[LONE] then
        if #entries == 0 then deadline = e[LONE] end
        entries[#entries + 1] = e
      end
    end
    return {epoch = c[EPOCH], entries = entries, deadline = deadline, lone = true, as_kept = true}
  end
  if not c[OWNER] or c[EPOCH] ~= epoch then
    return {epoch = epoch, entries = entries, deadline = 0, as_kept = true}
  end
  for _, e in ipairs(c[INBOX]) do
    if mine[e[SEQ]] and e[CLAIMED] then entries[#entries + 1] = e end
  end
  return {epoch = epoch, entries = entries, deadline = c[DEADLINE], as_kept = true}
end

-- what this operation answered the first time, if it is a repeat
local function replayed()
  local result = may_be_known and noted(op)
  if not result then return nil end
  local status, epoch, seq, seqs = string.match(result, '^(%S+) (%S+) (%S+) ([%d,]*)')
  epoch = tonumber(epoch)
  return reply(status, tonumber(seq), epoch ~= 0 and regranted(epoch, seqs) or nil)
end

-- pieces

local function take_out(gone)
  local left = {}
  for _, e in ipairs(c[INBOX]) do
    if not gone[e[SEQ]] then left[#left + 1] = e end
  end
  c[INBOX] = left
end

local function give_up(entries, reason, dropped)
  local gone = {}
  for _, e in ipairs(entries) do
    gone[e[SEQ]] = true
    let_go(e[SEQ])
    mark(e[ID])
    if reason then dropped[#dropped + 1] = {e[ID], reason} end
  end
  take_out(gone)
end

local function expire_entries(dropped)
  local stale = {}
  for _, e in ipairs(c[INBOX]) do
    if e[ENDS] and e[ENDS] <= now and is_waiting(e) then stale[#stale + 1] = e end
  end
  if #stale > 0 then give_up(stale, 'expired', dropped) end
end

local function unclaim()
  for _, e in ipairs(c[INBOX]) do
    if e[CLAIMED] or (e[LONE] and e[LONE] <= now) then e[CLAIMED], e[LONE] = false, false end
  end
end

local function bury(spent, reason, dropped)
  if #spent == 0 then return end
  local dead = c[DEAD]
  put = put or {}
  for _, e in ipairs(spent) do
    local seq = string.format('%d', e[SEQ])
    local letter = cmsgpack.pack({e[SEQ], e[ID], e[ACCEPTED], e[ATTEMPTS], reason, now})
    local at = #put
    put[at + 1], put[at + 2], put[at + 3], put[at + 4] = 'x' .. seq, letter, 'y' .. seq, payload_of(e[SEQ])
    dead[#dead + 1] = e[SEQ]
    dead[#dead + 1] = e[ID]
  end
  give_up(spent, 'dead', dropped)
  cut = cut or {}
  while #dead / 2 > terms[DEAD_LIMIT] do
    local seq, id = string.format('%d', table.remove(dead, 1)), table.remove(dead, 1)
    cut[#cut + 1] = 'x' .. seq
    cut[#cut + 1] = 'y' .. seq
    dropped[#dropped + 1] = {id, 'dead-limit'}
  end
end

local function next_due()
  local chosen = {}
  for _, e in ipairs(c[INBOX]) do
    if is_waiting(e) then
      if e[NOT_BEFORE] > now then
        if e[BLOCKS] then break end
      elseif #chosen == 0 then
        chosen[1] = e
        if e[GATHER] ~= 'burst' then break end
      elseif e[GATHER] == 'burst' then
        chosen[#chosen + 1] = e
      else
        break
      end
    end
  end
  return chosen
end

local function claim_next(dropped)
  while true do
    local chosen, spent = next_due(), {}
    for _, e in ipairs(chosen) do
      if e[ATTEMPTS] >= terms[MAX_ATTEMPTS] then spent[#spent + 1] = e end
    end
    if #spent == 0 then
      for _, e in ipairs(chosen) do e[CLAIMED], e[ATTEMPTS] = true, e[ATTEMPTS] + 1 end
      return chosen
    end
    bury(spent, 'abandoned: every worker that ran it was lost', dropped)
  end
end

local function take_lease(owner, entries)
  c[EPOCH], c[OWNER], c[DEADLINE] = c[EPOCH] + 1, owner, now + terms[LEASE]
  return {epoch = c[EPOCH], entries = entries, deadline = c[DEADLINE]}
end

local function grant_next(owner, dropped)
  local claimed = claim_next(dropped)
  if #claimed == 0 then
    c[OWNER], c[DEADLINE] = false, 0
    return nil
  end
  return take_lease(owner, claimed)
end

local function taken(owner, dropped)
  expire_entries(dropped)
  unclaim()
  return grant_next(owner, dropped)
end

local function some(dropped)
  return #dropped > 0 and dropped or nil
end

-- the entries of a claim {epoch, seqs, lone, attempt} that is still good, or nil
local function held(claim)
  local mine = {}
  if claim[3] then
    for _, e in ipairs(c[INBOX]) do
      for _, seq in ipairs(claim[2]) do
        if e[SEQ] == seq and e[LONE] then mine[#mine + 1] = e end
      end
    end
    return #mine == 1 and mine[1][ATTEMPTS] == claim[4] and mine or nil
  end
  if not c[OWNER] or c[EPOCH] ~= claim[1] then return nil end
  for _, e in ipairs(c[INBOX]) do
    if e[CLAIMED] then
      mine[#mine + 1] = e
      if claim[2][#mine] ~= e[SEQ] then return nil end
    end
  end
  return #mine == #claim[2] and mine or nil
end

local function drop_record()
  data_changed, reset_data = true, reset_data or c[RECORD]
  c[FLOW], c[STATE], c[RECORD], c[EXPIRES], c[SIZE] = false, false, false, false, 0
end

-- refuse more data than a record may hold; SIZE is at least what there is, and exact when it matters
local function check_size(added)
  c[SIZE] = c[SIZE] + added
  if c[SIZE] <= terms[MAX_BYTES] then return nil end
  local sizes, total = {}, 0
  local function note(words, from, to)
    for place = from, to, 2 do
      sizes[words[place]] = #string.gsub(words[place], '[\128-\191]', '') + #words[place + 1]
    end
  end
  if not reset_data then
    local there = redis.call('HGETALL', KEYS[2])
    note(there, 1, #there)
  end
  for _, key in ipairs(removed or {}) do sizes[key] = nil end
  if set_from then note(ARGV, set_from, set_to) end
  for _, size in pairs(sizes) do total = total + size end
  c[SIZE] = total
  if total > terms[MAX_BYTES] then return redis.error_reply('HITHERTO-TOO-LARGE ' .. string.format('%d', total)) end
  return nil
end
