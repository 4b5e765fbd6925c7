-- Gives queued flights to a node with free slots: at origins that have room, the one with the lowest score first. A flight that the node
-- wants itself counts as older, because its body then needs no way to another node. But nodes take turns at a full origin: a place there
-- is left to a waiting node whose first flight is older than the caller's.
--
-- Arguments: free slots (0 to 64), and 0 for flights of all nodes, 1 for flights that stay on the node alone, or 2 for flights that the
-- node wants itself. With 0 slots the call only wakes another node.
--
-- Returns the milliseconds until a paused origin opens (-1 for none), then for each flight two texts: key, fencing token, class, and 1 if
-- the node wants it itself; and its record, which is empty for the node's own flights.
local function take(node, first, last)
  -- Milliseconds by which a flight counts as older for a node that wants it itself.
  local OWN = 1000
  -- Milliseconds by which a flight must be older than one of the caller so that its node has the turn. A place is empty while it changes
  -- nodes.
  local TURN = 20
  -- Milliseconds after which the caller asks again for a place that it left, as the other node may have died.
  local LEFT = 20
  -- Number of the last nodes that asked in vain, among which one may have the turn, and of first flights of each.
  local WAITING, FIRST = 5, 4

  local most, isOwnOnly, isWantedOnly = tonumber(ARGV[first]), ARGV[first + 1] == '1', ARGV[first + 1] == '2'
  if not isMember(node) then return LOST end

  if firstOpening() <= now then
    local due = redis.call('ZRANGEBYSCORE', P .. 'paused', '-inf', now, 'LIMIT', 0, 32)
    readOrigins(due)
    for _, id in ipairs(due) do
      local o = origins[id]
      o.wasPaused = true
      updateOrigin(o, node)
    end
    writeTables()
  end

  -- Lanes with a flight that may start, and by origin the own flights that any node may start.
  local lanes, ownOf = {}, {}

  local function look(name, owner)
    local members, ids = redis.call('ZRANGE', name, 0, most - 1), {}
    if members[#members] == '' then members[#members] = nil end
    for i, member in ipairs(members) do ids[i] = string.sub(member, 1, 32) end
    readOrigins(ids)
    for i, member in ipairs(members) do
      local o, lane = origins[ids[i]], '/' .. owner .. (ids[i] ~= member and '!' or '')
      lanes[#lanes + 1] = {
        index = #lanes, o = o, lane = lane, taken = {}, queue = {key = queue(o, lane), names = {}, scores = {}, at = 1},
      }
      if owner == '' then
        lanes[#lanes].share = {names = {}, scores = {}, at = 1, isComplete = true}
        ownOf[o.id] = lanes[#lanes].share
      end
    end
  end

  if most > 0 then
    if not isOwnOnly then look(P .. 'ready:', '') end
    look(P .. 'ready:' .. node, node)
  end

  -- Gives the lanes those flights of the node's share that may start: as many as the call may take, among the first four times
  -- that number. `stale` has flights that leave the share.
  local stale, found, looked = {}, 0, 0
  while next(ownOf) and found < most and looked < 4 * most do
    local heads, names = redis.call('ZRANGE', key('h', node), looked, looked + most - 1, 'WITHSCORES'), {}
    for i = 1, #heads, 2 do names[#names + 1] = heads[i] end
    readAll(names)
    for i, name in ipairs(names) do
      local flight = texts[name]
      if flight and string.sub(flight, 1, 1) == 'q' then
        local list = ownOf[string.sub(flight, 3, 34)]
        if list then
          list.names[#list.names + 1], list.scores[#list.scores + 1] = name, tonumber(heads[2 * i])
          found = found + 1
        end
      else
        stale[#stale + 1] = name
      end
    end
    looked = looked + #names
    if #names < most then break end
  end

  -- Flights that are read of a queue at once: few if there are many lanes.
  local chunk = math.floor(most / math.max(#lanes, 1)) + 1
  local isTaken = {}

  local function readMore(list)
    local heads = redis.call('ZRANGE', list.key, #list.names, #list.names + chunk - 1, 'WITHSCORES')
    for i = 1, #heads, 2 do
      list.names[#list.names + 1], list.scores[#list.scores + 1] = heads[i], tonumber(heads[i + 1])
    end
    list.isComplete = #heads < 2 * chunk
  end

  -- Score of the first flight of a queue or a share that is left; nil for none. `at` is its index.
  local function front(list)
    while true do
      local name = list.names[list.at]
      if not name then
        if list.isComplete then return nil end
        readMore(list)
      elseif isTaken[name] then
        list.at = list.at + 1
      else
        return list.scores[list.at]
      end
    end
  end

  -- Finds the next flight of a lane: the oldest own one, unless another one is older by more than `OWN`.
  local function advance(lane)
    local own, oldest = lane.share and front(lane.share), front(lane.queue)
    if isWantedOnly and lane.share then
      lane.list, lane.score = lane.share, own and own - OWN
    elseif own and own - OWN <= (oldest or own) then
      lane.list, lane.score = lane.share, own - OWN
    else
      -- Flights of a lane of this node alone count as own ones.
      lane.list, lane.score = lane.queue, oldest and (lane.share and oldest or oldest - OWN)
    end
  end

  -- Lanes with flights, from `head` on. The one whose next flight has the lowest score is first.
  local order, head = {}, 1

  local function isBefore(a, b) return a.score < b.score or a.score == b.score and a.index < b.index end

  for _, lane in ipairs(lanes) do
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

  -- Score that a flight of another node must be below to have the turn, by origin. A flight that the caller does not want itself is left to
  -- a node that does.
  local bounds = {}
  for _, lane in ipairs(order) do
    local isForeign = lane.share and lane.list == lane.queue
    local bound = isForeign and lane.score + 1 or lane.score + OWN - TURN
    bounds[lane.o.id] = math.min(bounds[lane.o.id] or bound, bound)
  end

  -- The node that has the turn, and the origin where the caller leaves it a place.
  local turn, left, best

  local function compare(other, id, score)
    if bounds[id] and score < bounds[id] and (not best or score < best) then turn, left, best = other, origins[id], score end
  end

  for _, other in ipairs(next(bounds) and redis.call('ZRANGE', P .. 'idle', 0, WAITING - 1, 'REV') or {}) do
    if other ~= node then
      local members = redis.call('ZRANGE', P .. 'ready:' .. other, 0, FIRST - 1, 'WITHSCORES')
      for i = 1, #members, 2 do compare(other, string.sub(members[i], 1, 32), tonumber(members[i + 1])) end
      local heads, names = redis.call('ZRANGE', key('h', other), 0, FIRST - 1, 'WITHSCORES'), {}
      for i = 1, #heads, 2 do names[#names + 1] = heads[i] end
      readAll(names)
      for i, name in ipairs(names) do
        local flight = texts[name]
        if flight and string.sub(flight, 1, 1) == 'q' then compare(other, string.sub(flight, 3, 34), tonumber(heads[2 * i])) end
      end
    end
  end
  if left then left.r = left.r + 1 end

  -- Keys of flights, and their lanes.
  local jobs, from = {}, {}
  -- Origins whose limit or times changed, and those with a lane that they closed, by ID.
  local touched, blocked = {}, {}
  while #jobs < most do
    local next = order[head]
    if not next then break end
    local o = next.o
    -- With a spacing there is one place.
    local at = (o ~= left or o.s == 0) and opening(o, next.lane)
    if at and at <= now then
      local name = next.list.names[next.list.at]
      jobs[#jobs + 1], from[#from + 1] = name, next
      next.taken[#next.taken + 1], isTaken[name] = name, true
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
  if left then left.r = left.r - 1 end

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
    local foreign, mark = {}, node .. ','
    readAll(jobs)
    for i, name in ipairs(jobs) do
      local flight = texts[name]
      if flight and string.sub(flight, 1, 1) == 'q' then
        local fence = string.format('%016d', token + i - 1)
        put(name, 'r' .. string.sub(flight, 2, 51) .. node .. ' ' .. fence .. string.sub(flight, 85))
        local last = string.find(flight, '\n', 86, true)
        local place = string.find(flight, mark, 86, true)
        local isOwn = place ~= nil and place < last
        if from[i].share then
          if isOwn then stale[#stale + 1] = name end
          -- Other nodes may want it, too.
          if not isOwn or last ~= 88 + #mark then setShares(string.sub(flight, 88, last - 1), name, false) end
        end
        if not isOwn then foreign[#foreign + 1] = name end
        replies[#replies + 1] = name .. ' ' .. fence .. ' ' .. string.sub(flight, 36, 36) .. (isOwn and ' 1' or ' 0')
        replies[#replies + 1] = isOwn and '' or string.sub(flight, last + 1)
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
      lane.head = front(lane.queue)
      if not lane.head then
        -- All flights of the lane were taken.
        emptied[#emptied + 1] = lane.queue.key
      elseif lane.queue.at == #taken + 1 then
        redis.call('ZREMRANGEBYRANK', lane.queue.key, 0, #taken - 1)
      else
        redis.call('ZREM', lane.queue.key, unpack(taken))
      end
    elseif #lane.queue.names == 0 then
      -- Its queue was evicted or deleted.
      full[o.id] = true
    end
    if touched[o.id] then
      local at = opening(o, lane.lane)
      if blocked[o.id] or not at or at > now then full[o.id] = true end
    end
  end
  if #stale > 0 then redis.call('ZREM', key('h', node), unpack(stale)) end
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
  updateOrigins(full, node)

  local isIdle = (#replies - 1) / 2 < most and not isOwnOnly and not isWantedOnly
  if isIdle then addIdle(node) else removeIdle(node) end
  if turn then wake(turn) else wakeOne(node) end
  local opens = firstOpening()
  if hasGhosts then
    -- Others may be behind them, so the caller asks again.
    replies[1] = 0
  elseif opens < math.huge then
    replies[1] = math.max(0, opens - now)
  end
  if turn and (replies[1] < 0 or replies[1] > LEFT) then replies[1] = LEFT end
  return replies
end
