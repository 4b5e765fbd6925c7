-- Records that a node wants flights, and queues those that do not exist. Repeating a call changes nothing.
--
-- ARGV: node, number of origins, for each origin: a text with ID, limit, spacing in ms; then for each flight two texts: key, index of its
-- origin, lane (s any node, p this node, c this node with credentials, h any node: an attempt for other nodes, which is
-- no want of this node), class 0 to 3, age of the want in ms, fencing token of an attempt
-- that the node runs or 0; and the record.
--
-- Returns for each flight: q queued, r another attempt runs, o the node's attempt runs, s the token is stale and another attempt has the
-- flight, or d and the result of a flight that ended after the want had begun.

local node = ARGV[1]
if not isMember(node) then return LOST end

local count = tonumber(ARGV[2])
local ids, changed, touched = {}, {}, {}
for i = 1, count do
  local id, limit, spacing = string.match(ARGV[2 + i], '^(%x+) (%d+) (%d+)$')
  local o = origin(id)
  limit, spacing = tonumber(limit), tonumber(spacing)
  if o.l ~= limit or o.s ~= spacing then
    o.l, o.s = limit, spacing
    if not o.isNew then changed[id] = true end
  end
  ids[i] = id
end

local first = 3 + count
local texts = readAll(first)
local replies, added = {}, {}

-- Writes that are made together: flights, and members of queues. Keys that this call has handled.
local sets, queued, seen = {}, {}, {}

local function flush()
  if #sets > 0 then redis.call('MSET', unpack(sets)) end
  for name, members in pairs(queued) do redis.call('ZADD', name, unpack(members)) end
  sets, queued = {}, {}
end

local function set(name, value) sets[#sets + 1], sets[#sets + 2] = key('f', name), value end

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

for i = first, #ARGV, 2 do
  local name = string.sub(ARGV[i], 1, 32)
  local index, kind, class, age, token = string.match(ARGV[i], '^(%d+) (%a) (%d) (%d+) (%d+)$', 34)
  class = tonumber(class)
  if token ~= '0' then token = padded(token) end
  local lane = kind == 'p' and '/' .. node or kind == 'c' and '/' .. node .. '!' or '/'
  local found = texts[(i - first) / 2 + 1]
  if seen[name] then
    flush()
    found = redis.call('GET', key('f', name))
  end
  seen[name] = true
  local f = parse(name, found)
  local reply
  if f and f.state == 'd' then
    if token == '0' and f.arrival >= now - age then reply = 'd' .. record(f) end
    f = nil
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
      set(name, 'r ' .. o.id .. ' ' .. class .. ' ' .. nowText .. ' ' .. node .. ' ' .. token .. ' ' .. lane .. ' ' .. wants .. ARGV[i + 1])
      reply = 'o'
    else
      if addLane(o, lane) then touched[o.id] = true end
      isQueued(o, lane, name, scores[class])
      set(name, 'q ' .. o.id .. ' ' .. class .. ' ' .. nowText .. ' ' .. NONE .. ' ' .. lane .. ' ' .. wants .. ARGV[i + 1])
      reply = 'q'
    end
  else
    local isChanged = false
    if kind ~= 'h' and not isIn(f.wants, node) then
      f.wants = f.wants .. node .. ','
      added[#added + 1] = name
      isChanged = true
    end
    local o = origin(f.o)
    if lane ~= '/' and lane ~= f.lane then
      -- Its node has joined under another ID.
      if f.state == 'q' then
        redis.call('ZREM', queue(o, f.lane), name)
        redis.call('ZADD', queue(o, lane), score(f), name)
        addLane(o, lane)
        changed[o.id] = true
      end
      f.lane = lane
      isChanged = true
    end
    if token == '0' then
      reply = f.state
    elseif f.state == 'q' then
      redis.call('ZREM', queue(o, f.lane), name)
      f.state, f.node, f.token = 'r', node, token
      o.r = o.r + 1
      changed[o.id] = true
      added[#added + 1] = name
      isChanged = true
      reply = 'o'
    elseif f.token == token then
      if f.node ~= node then
        -- The same attempt, after its node has joined under another ID.
        f.node = node
        added[#added + 1] = name
        isChanged = true
      end
      reply = 'o'
    else
      reply = 's'
    end
    if class > f.class then
      f.class = class
      isChanged = true
      if f.state == 'q' then isQueued(o, f.lane, name, score(f)) end
    end
    if isChanged then set(name, text(f)) end
  end
  replies[#replies + 1] = reply
end

flush()
if #added > 0 then redis.call('SADD', key('n', node), unpack(added)) end
for id, lanes in pairs(best) do
  local o = origins[id]
  if not changed[id] then
    for lane, score in pairs(lanes) do
      local at = opening(o, lane)
      if at and at <= now then
        local name, member = ready(o, lane)
        redis.call('ZADD', name, 'LT', string.format('%d', score), member)
      elseif at then
        redis.call('ZADD', P .. 'paused', 'LT', string.format('%d', at), id)
      end
    end
  end
end
for id in pairs(touched) do
  if not changed[id] then save(origins[id]) end
end
settleAll(changed, node)
return replies
