-- Gives queued flights to a node with free slots: at origins that have room, the one with the lowest score first. A flight that the node
-- wants itself counts as older, because its body then needs no way to another node.
--
-- Arguments: free slots (0 to 64), and 1 for flights that stay on the node alone. With 0 slots the call only wakes another node.
--
-- Returns the milliseconds until a paused origin opens (-1 for none), then for each flight two texts: key, fencing token, class, and 1 if
-- the node wants it itself; and its record, which is empty for the node's own flights.
local function take(node, first, last)
  -- Milliseconds by which a flight counts as older for a node that wants it itself.
  local OWN = 1000
  -- With up to so many lanes, own flights are preferred among four times those that the call may take, and these are at least FEWEST.
  local FEW_LANES, FEWEST = 4, 8

  local most, isOwnOnly = tonumber(ARGV[first]), ARGV[first + 1] == '1'
  if not isMember(node) then return LOST end

  -- Whether a node wants the flight of a text, without `parse`, which makes many strings.
  local mark = node .. ','
  local function isOwnText(text)
    local place = text and string.find(text, mark, 86, true)
    return place and place < string.find(text, '\n', 86, true)
  end

  if firstOpening() <= now then
    local due = redis.call('ZRANGEBYSCORE', P .. 'paused', '-inf', now, 'LIMIT', 0, 32)
    readOrigins(due)
    for _, id in ipairs(due) do
      local o = origins[id]
      o.wasPaused = true
      settle(o, node)
    end
    writeTables()
  end

  -- Lanes with a flight that may start.
  local lanes = {}

  local function look(name, owner)
    local members, ids = redis.call('ZRANGE', name, 0, most - 1), {}
    if members[#members] == '' then members[#members] = nil end
    for i, member in ipairs(members) do ids[i] = string.sub(member, 1, 32) end
    readOrigins(ids)
    for i, member in ipairs(members) do
      local id = ids[i]
      lanes[#lanes + 1] = {
        index = #lanes, o = origins[id], lane = '/' .. owner .. (id ~= member and '!' or ''), names = {}, scores = {}, taken = {}, own = 1,
        other = 1,
      }
    end
  end

  if most > 0 then
    if not isOwnOnly then look(P .. 'ready:', '') end
    look(P .. 'ready:' .. node, node)
  end

  -- Flights that are read of a lane at once: few if there are many lanes. Own flights are preferred among those of one block.
  local chunk = math.floor(most / math.max(#lanes, 1)) + 1
  local block = chunk
  if #lanes <= FEW_LANES then
    chunk = math.max(chunk, FEWEST)
    block = 4 * chunk
  end

  -- Keys of read flights that the node wants itself.
  local isOwn = {}

  local function read(lane)
    local heads = redis.call('ZRANGE', queue(lane.o, lane.lane), #lane.names, #lane.names + chunk - 1, 'WITHSCORES')
    local names = {}
    for i = 1, #heads, 2 do
      names[#names + 1] = heads[i]
      lane.names[#lane.names + 1], lane.scores[#lane.scores + 1] = heads[i], tonumber(heads[i + 1])
    end
    lane.isComplete = #names < chunk
    readAll(names)
    for _, name in ipairs(names) do isOwn[name] = isOwnText(texts[name]) end
  end

  -- Finds the next flight of a lane: the oldest own one of its block, unless another one is older by more than `OWN`.
  local function advance(lane)
    local names, scores = lane.names, lane.scores
    while true do
      while names[lane.own] and not isOwn[names[lane.own]] do lane.own = lane.own + 1 end
      while names[lane.other] and isOwn[names[lane.other]] do lane.other = lane.other + 1 end
      local own, other = scores[lane.own], scores[lane.other]
      if own and own - OWN <= (other or own) then
        lane.at, lane.score = lane.own, own - OWN
        return
      end
      if other and (own or lane.isComplete or #names == lane.last or scores[#names] - OWN > other) then
        lane.at, lane.score = lane.other, other
        return
      end
      if not other then
        if lane.isComplete then
          lane.score = nil
          return
        end
        if #names == lane.last then lane.last = lane.last + block end
      end
      read(lane)
    end
  end

  -- Lanes with flights, from `head` on. The one whose next flight has the lowest score is first.
  local order, head = {}, 1

  local function isBefore(a, b) return a.score < b.score or a.score == b.score and a.index < b.index end

  for _, lane in ipairs(lanes) do
    lane.last = block
    advance(lane)
    if lane.score then
      local place = #order + 1
      while place > 1 and isBefore(lane, order[place - 1]) do
        order[place] = order[place - 1]
        place = place - 1
      end
      order[place] = lane
    end
  end

  -- Keys of flights, and their lanes.
  local jobs, from = {}, {}
  -- Origins whose limit or times changed, and those with a lane that they closed, by ID.
  local touched, blocked = {}, {}
  while #jobs < most do
    local next = order[head]
    if not next then break end
    local o = next.o
    local at = opening(o, next.lane)
    if at and at <= now then
      jobs[#jobs + 1], from[#from + 1] = next.names[next.at], next
      next.taken[#next.taken + 1] = next.names[next.at]
      if next.at == next.own then next.own = next.own + 1 else next.other = next.other + 1 end
      advance(next)
      o.r = o.r + 1
      if o.s > 0 then o.n = now + o.s end
      touched[o.id] = true
    else
      next.score = nil
      touched[o.id], blocked[o.id] = true, true
    end
    if next.score then
      local place = head
      while order[place + 1] and isBefore(order[place + 1], next) do
        order[place] = order[place + 1]
        place = place + 1
      end
      order[place] = next
    else
      head = head + 1
    end
  end

  local replies = {-1}
  local full, hasGhosts = {}, false
  if #jobs > 0 then
    local token = clock[1] * 1000000 + clock[2]
    local function setToken() return redis.call('SET', P .. 'token', string.format('%d', token + #jobs - 1), 'PX', LIFE, 'GET') end
    local previous = tonumber(setToken() or 0)
    if token <= previous then
      token = previous + 1
      setToken()
    end
    local foreign = {}
    for i, name in ipairs(jobs) do
      local flight = texts[name]
      if flight and string.sub(flight, 1, 1) == 'q' then
        local fence = string.format('%016d', token + i - 1)
        put(name, 'r' .. string.sub(flight, 2, 51) .. node .. ' ' .. fence .. string.sub(flight, 85))
        replies[#replies + 1] = name .. ' ' .. fence .. ' ' .. string.sub(flight, 36, 36) .. (isOwn[name] and ' 1' or ' 0')
        if isOwn[name] then
          replies[#replies + 1] = ''
        else
          foreign[#foreign + 1] = name
          replies[#replies + 1] = string.sub(flight, string.find(flight, '\n', 86, true) + 1)
        end
      else
        -- Its record was evicted or deleted, or is of another life of the cluster. The member is removed with the others below.
        local o = from[i].o
        o.r = o.r - 1
        full[o.id], hasGhosts = true, true
      end
    end
    relate(node, foreign)
  end

  -- A lane is settled here from the flights that were read. The whole origin is settled only where a limit or a pause ended its lanes.
  local emptied = {}
  for _, lane in ipairs(lanes) do
    local o, taken = lane.o, lane.taken
    if #taken > 0 then
      local left = math.min(lane.own, lane.other)
      lane.head = lane.scores[left]
      if not lane.head then
        -- All flights of the lane were taken.
        emptied[#emptied + 1] = queue(o, lane.lane)
      elseif left == #taken + 1 then
        redis.call('ZREMRANGEBYRANK', queue(o, lane.lane), 0, #taken - 1)
      else
        redis.call('ZREM', queue(o, lane.lane), unpack(taken))
      end
    elseif #lane.names == 0 then
      -- Its queue was evicted or deleted.
      full[o.id] = true
    end
    if touched[o.id] then
      local at = opening(o, lane.lane)
      if blocked[o.id] or not at or at > now then full[o.id] = true end
    end
  end
  if #emptied > 0 then redis.call('DEL', unpack(emptied)) end
  for _, lane in ipairs(lanes) do
    local o = lane.o
    if #lane.taken > 0 and not full[o.id] then
      if lane.head then
        setReady(o, lane.lane, string.format('%d', lane.head), node)
      else
        removeReady(o, lane.lane)
        local rest = ''
        for other in string.gmatch(o.lanes, '/%x*!?') do
          if other ~= lane.lane then rest = rest .. other end
        end
        o.lanes = rest
      end
      save(o)
    end
  end
  settleAll(full, node)

  if (#replies - 1) / 2 < most and not isOwnOnly then addIdle(node) else redis.call('SREM', P .. 'idle', node) end
  wakeOne(node)
  local opens = firstOpening()
  if hasGhosts then
    -- Others may be behind them, so the caller asks again.
    replies[1] = 0
  elseif opens < math.huge then
    replies[1] = math.max(0, opens - now)
  end
  return replies
end
