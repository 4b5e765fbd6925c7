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

local replies, added = {}, {}

-- Best score of the flights that were queued, by origin and lane.
local best = {}

local nowText = string.format('%d', now)

local function isQueued(o, f)
  local text = score(f)
  local score = tonumber(text)
  redis.call('ZADD', queue(o, f.lane), text, f.name)
  local lanes = best[o.id]
  if not lanes then
    lanes = {}
    best[o.id] = lanes
  end
  if not lanes[f.lane] or score < lanes[f.lane] then lanes[f.lane] = score end
end

local function run(o, f, token)
  f.state, f.node, f.token = 'r', node, token
  o.r = o.r + 1
  changed[o.id] = true
end

for i = 3 + count, #ARGV, 2 do
  local name = string.sub(ARGV[i], 1, 32)
  local index, kind, class, age, token = string.match(ARGV[i], '^(%d+) (%a) (%d) (%d+) (%d+)$', 34)
  class = tonumber(class)
  local lane = kind == 'p' and '/' .. node or kind == 'c' and '/' .. node .. '!' or '/'
  local f = read(name)
  local reply
  if f and f.state == 'd' then
    if token == '0' and f.arrival >= now - age then reply = 'd' .. record(f) end
    f = nil
  end
  if reply then
    -- The flight ended after the want had begun.
  elseif not f then
    local o = origin(ids[tonumber(index)])
    f = {
      name = name, state = 'q', o = o.id, lane = lane, class = class, arrival = nowText, node = '-', token = '0',
      wants = kind == 'h' and '' or node .. ',', text = ARGV[i + 1], from = 1,
    }
    added[#added + 1] = name
    if token ~= '0' then
      run(o, f, token)
      reply = 'o'
    else
      if addLane(o, lane) then touched[o.id] = true end
      isQueued(o, f)
      reply = 'q'
    end
    write(f)
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
      run(o, f, token)
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
      if f.state == 'q' then isQueued(o, f) end
    end
    if isChanged then write(f) end
  end
  replies[#replies + 1] = reply
end

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
        redis.call('ZADD', P .. 'paused', 'LT', at, id)
      end
    end
  end
end
for id in pairs(touched) do
  if not changed[id] then save(origins[id]) end
end
settleAll(changed, node)
return replies
