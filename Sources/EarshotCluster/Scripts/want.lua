-- Records that a node wants flights, and queues those that do not exist. Repeating a call changes nothing.
--
-- Arguments: number of origins, for each origin: a text with ID, limit, spacing in ms; then for each flight two texts: key, index of its
-- origin, lane (s any node, p this node, c this node with credentials, h any node: an attempt for other nodes, which is
-- no want of this node), class 0 to 3, age of the want in ms, fencing token of an attempt
-- that the node runs or 0; and the record.
--
-- Returns for each flight: q queued, r another attempt runs, o the node's attempt runs, s the token is stale and another attempt has the
-- flight, or d and the result of a flight that ended after the want had begun.
local function want(node, first, last)
  if not isMember(node) then return LOST end

  -- Milliseconds for which an asserted attempt that no node wants is not aborted: after a loss of data, nodes that want its flight may
  -- need that time to join and to assert it.
  local GRACE = 5000

  local count = tonumber(ARGV[first])
  local ids, changed = {}, {}
  for i = 1, count do ids[i] = string.sub(ARGV[first + i], 1, 32) end
  readOrigins(ids)
  for i = 1, count do
    local limit, spacing = string.match(ARGV[first + i], '^(%d+) (%d+)$', 34)
    local o = origins[ids[i]]
    limit, spacing = tonumber(limit), tonumber(spacing)
    if o.l ~= limit or o.s ~= spacing then
      o.l, o.s = limit, spacing
      if not o.isNew then changed[o.id] = true end
    end
    if o.lanes ~= '' and o.e < now + QUEUE_LIFE / 2 then
      for lane in string.gmatch(o.lanes, '/%x*!?') do redis.call('PEXPIRE', queue(o, lane), QUEUE_LIFE) end
      o.e = now + QUEUE_LIFE
      save(o)
    end
  end

  first = first + 1 + count
  readArguments(first, last)
  local replies, added = {}, {}

  -- Results of flights that have ended. Those in the older table ended before the younger one began, so few wants are old enough for them.
  local results, names, oldest = {}, {''}, now
  for i = first, last, 2 do
    local name = string.sub(ARGV[i], 1, 32)
    if not texts[name] then
      local age = tonumber(string.match(ARGV[i], '^%d+ %a %d (%d+)', 34))
      names[#names + 1] = age > 0 and name or nil
      oldest = math.min(oldest, now - age)
    end
  end
  if #names > 1 then
    local found = redis.call('HMGET', D, unpack(names))
    for i = 2, #names do results[names[i]] = found[i] end
    if oldest < tonumber(string.match(found[1] or '', '^%d+') or now) then
      for i, result in ipairs(redis.call('HMGET', E, unpack(names))) do results[names[i]] = results[names[i]] or result end
    end
  end

  -- Members of queues that are written together, and members that should be there already, with origin and lane. Keys that this call
  -- has handled.
  local queued, expected, seen = {}, {}, {}

  local function flush()
    for name, members in pairs(queued) do redis.call('ZADD', name, unpack(members)) end
    for name, list in pairs(expected) do
      if redis.call('ZADD', name, 'NX', unpack(list.members)) > 0 or list.o.isNew then
        -- The queue or the origin was evicted or deleted.
        addLane(list.o, list.lane)
        changed[list.o.id] = true
      end
    end
    queued, expected = {}, {}
  end

  local function isExpected(o, f)
    local name = queue(o, f.lane)
    local list = expected[name]
    if not list then
      list = {o = o, lane = f.lane, members = {}}
      expected[name] = list
    end
    list.members[#list.members + 1], list.members[#list.members + 2] = score(f), f.name
  end

  -- Best score of the flights that were queued, by origin and lane.
  local best = {}

  local function isQueued(o, lane, name, text)
    local members = queued[queue(o, lane)]
    if not members then
      members = {}
      queued[queue(o, lane)] = members
    end
    members[#members + 1], members[#members + 2] = text, name
    local lanes = best[o.id]
    if not lanes then
      lanes = {}
      best[o.id] = lanes
    end
    local score = tonumber(text)
    if not lanes[lane] or score < lanes[lane] then lanes[lane] = score end
  end

  local nowText = string.format('%d', now)
  local scores = {}
  for class = 0, 3 do scores[class] = string.format('%d', now - class * CLASS) end

  for i = first, last, 2 do
    local name = string.sub(ARGV[i], 1, 32)
    local index, kind, digit, age, token = string.match(ARGV[i], '^(%d+) (%a) (%d) (%d+) (%d+)$', 34)
    local class = tonumber(digit)
    if token ~= '0' then token = padded(token) end
    local lane = kind == 'p' and '/' .. node or kind == 'c' and '/' .. node .. '!' or '/'
    if seen[name] then flush() end
    seen[name] = true
    local f = read(name)
    local reply
    if not f and token == '0' and results[name] then
      local time, from = string.match(results[name], '^(%d+)\n()')
      -- A time in the future is of a clock that went back. All times are cut to milliseconds, so an equal one may be of a result that is
      -- older than the want.
      time = tonumber(time)
      if time <= now and time > now - age then reply = 'd' .. string.sub(results[name], from) end
    end
    if reply then
      -- The flight ended after the want had begun.
    elseif not f then
      local o = origin(ids[tonumber(index)])
      local wants = kind == 'h' and '\n' or node .. ',\n'
      added[#added + 1] = name
      if token ~= '0' then
        o.r = o.r + 1
        changed[o.id] = true
        put(name, 'r ' .. o.id .. ' ' .. digit .. ' ' .. nowText .. ' ' .. node .. ' ' .. token .. ' ' .. lane .. ' ' .. wants .. ARGV[i + 1])
        reply = 'o'
      else
        if addLane(o, lane) then save(o) end
        isQueued(o, lane, name, scores[class])
        if lane == '/' then setShare(node, name, scores[class]) end
        put(name, 'q ' .. o.id .. ' ' .. digit .. ' ' .. nowText .. ' ' .. NONE .. ' ' .. lane .. ' ' .. wants .. ARGV[i + 1])
        reply = 'q'
      end
    else
      local isChanged = false
      local hasJoined = kind ~= 'h' and not isIn(f.wants, node)
      if hasJoined then
        f.wants = f.wants .. node .. ','
        added[#added + 1] = name
        isChanged = true
      end
      local o = origin(f.o)
      if lane ~= '/' and lane ~= f.lane then
        -- Its node has joined under another ID.
        if f.state == 'q' then
          redis.call('ZREM', queue(o, f.lane), name)
          if f.lane == '/' then setShares(f.wants, name, false) end
          redis.call('ZADD', queue(o, lane), score(f), name)
          addLane(o, lane)
          changed[o.id] = true
        end
        f.lane = lane
        isChanged = true
      end
      if token == '0' then
        if f.state == 'q' then isExpected(o, f) end
        reply = f.state
      elseif f.state == 'q' then
        redis.call('ZREM', queue(o, f.lane), name)
        if f.lane == '/' then setShares(f.wants, name, false) end
        f.state, f.node, f.token = 'r', node, token
        o.r = o.r + 1
        changed[o.id] = true
        added[#added + 1] = name
        isChanged = true
        reply = 'o'
      elseif f.token == token or not isMember(f.node) then
        if f.node ~= node or f.token ~= token then
          -- The same attempt, after its node has joined under another ID; or one in place of that of a node that is gone.
          f.node, f.token = node, token
          added[#added + 1] = name
          isChanged = true
        end
        -- The message that told its node to abort it may be lost. An arrival in the future is of a clock that went back.
        local arrival = tonumber(string.sub(f.text, 38, 50))
        if f.wants == '' and (arrival > now or arrival + GRACE <= now) then send(node, 'x ' .. name .. ' ' .. token) end
        reply = 'o'
      else
        reply = 's'
      end
      if class > f.class then
        f.class = class
        isChanged = true
        if f.state == 'q' then isQueued(o, f.lane, name, score(f)) end
        if f.state == 'q' and f.lane == '/' then setShares(f.wants, name, score(f)) end
      elseif hasJoined and f.state == 'q' and f.lane == '/' then
        setShare(node, name, score(f))
      end
      if isChanged then write(f) end
    end
    replies[#replies + 1] = reply
  end

  flush()
  relate(node, added)
  updateOrigins(changed, node)
  -- Origins of new flights alone, which need no look at their queues. A score may only fall here.
  local lower, pausing = {}, {}
  for id, lanes in pairs(best) do
    local o = origins[id]
    if not changed[id] then
      for lane, score in pairs(lanes) do
        local at = opening(o, lane)
        local list = at and at > now and pausing or lower
        if list == pausing then
          list[#list + 1], list[#list + 2] = string.format('%d', at), id
        elseif at and lane == '/' then
          list[#list + 1], list[#list + 2] = string.format('%d', score), id
        elseif at then
          local name, member = ready(o, lane)
          redis.call('ZADD', name, 'LT', string.format('%d', score), member)
          redis.call('PEXPIRE', name, NODE_LIFE)
        end
      end
    end
  end
  if #lower > 0 then redis.call('ZADD', P .. 'ready:', 'LT', unpack(lower)) end
  if #pausing > 0 then
    redis.call('ZADD', P .. 'paused', 'LT', unpack(pausing))
    firstPause = nil
  end
  return replies
end
