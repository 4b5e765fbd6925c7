-- Gives queued flights to a node with free slots: at origins that have room, the one with the lowest score first.
--
-- ARGV: node, free slots (0 to 64). With 0 the call only wakes another node.
--
-- Returns the milliseconds until a paused origin opens (-1 for none), then for each flight two texts: key, fencing token, class, and 1 if
-- the node wants it itself; and its record, which is empty for the node's own flights.

local node, most = ARGV[1], tonumber(ARGV[2])
if not isMember(node) then return LOST end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'paused', '-inf', now, 'LIMIT', 0, 32)) do
  local o = origin(id)
  o.wasPaused = true
  settle(o, node)
end

-- Lanes with a flight that may start.
local lanes = {}

local function look(name, owner)
  for _, member in ipairs(redis.call('ZRANGE', name, 0, most - 1)) do
    local id = string.sub(member, 1, 32)
    lanes[#lanes + 1] = {o = origin(id), lane = '/' .. owner .. (id ~= member and '!' or ''), taken = 0}
  end
end

if most > 0 then
  look(P .. 'ready:', '')
  look(P .. 'ready:' .. node, node)
end

-- Flights that are read of a lane at once: few if there are many lanes.
local chunk = math.floor(most / math.max(#lanes, 1)) + 1

-- Reads the next flights of a lane.
local function fill(lane)
  lane.heads = redis.call('ZRANGE', queue(lane.o, lane.lane), lane.taken, lane.taken + chunk - 1, 'WITHSCORES')
  lane.at = 1
  lane.score = tonumber(lane.heads[2])
end

for _, lane in ipairs(lanes) do fill(lane) end

local jobs = {}
while #jobs < most do
  local next
  for _, lane in ipairs(lanes) do
    if lane.score and (not next or lane.score < next.score) then next = lane end
  end
  if not next then break end
  local o = next.o
  local at = opening(o, next.lane)
  if at and at <= now then
    jobs[#jobs + 1] = next.heads[next.at]
    next.taken = next.taken + 1
    next.at = next.at + 2
    next.score = tonumber(next.heads[next.at + 1])
    if not next.score and #next.heads == 2 * chunk then fill(next) end
    o.r = o.r + 1
    if o.s > 0 then o.n = now + o.s end
    o.isTouched = true
  else
    next.score = nil
    o.isTouched, o.isBlocked = true, true
  end
end

local replies = {-1}
if #jobs > 0 then
  local token = clock[1] * 1000000 + clock[2]
  local last = tonumber(redis.call('GET', P .. 'token') or 0)
  if token <= last then token = last + 1 end
  redis.call('SET', P .. 'token', string.format('%d', token + #jobs - 1))
  local foreign, names, sets = {}, {}, {}
  for i, name in ipairs(jobs) do names[i] = key('f', name) end
  local texts = redis.call('MGET', unpack(names))
  for i, name in ipairs(jobs) do
    -- Without `parse`, which makes many strings.
    local flight, fence = texts[i], string.format('%016d', token + i - 1)
    sets[2 * i - 1] = names[i]
    sets[2 * i] = 'r' .. string.sub(flight, 2, 51) .. node .. ' ' .. fence .. string.sub(flight, 85)
    local last = string.find(flight, '\n', 86, true)
    local place = string.find(flight, node .. ',', 86, true)
    local isOwn = place ~= nil and place < last
    if not isOwn then foreign[#foreign + 1] = name end
    replies[2 * i] = name .. ' ' .. fence .. ' ' .. string.sub(flight, 36, 36) .. (isOwn and ' 1' or ' 0')
    replies[2 * i + 1] = isOwn and '' or string.sub(flight, last + 1)
  end
  redis.call('MSET', unpack(sets))
  if #foreign > 0 then redis.call('SADD', key('n', node), unpack(foreign)) end
end

-- A lane is settled here from the flights that were read. The whole origin is settled only where a limit or a pause ended its lanes.
local full = {}
for _, lane in ipairs(lanes) do
  local o = lane.o
  if lane.taken > 0 then redis.call('ZREMRANGEBYRANK', queue(o, lane.lane), 0, lane.taken - 1) end
  if o.isTouched then
    local at = opening(o, lane.lane)
    if o.isBlocked or not at or at > now then full[o.id] = true end
  end
end
local saved = {}
for _, lane in ipairs(lanes) do
  local o = lane.o
  if lane.taken > 0 and not full[o.id] then
    local head = lane.heads[lane.at + 1]
    local name, member = ready(o, lane.lane)
    if head then
      redis.call('ZADD', name, head, member)
    else
      -- All flights of the lane were taken.
      redis.call('ZREM', name, member)
      local rest = ''
      for other in string.gmatch(o.lanes, '/%x*!?') do
        if other ~= lane.lane then rest = rest .. other end
      end
      o.lanes = rest
    end
    saved[o.id] = true
  end
end
for id in pairs(saved) do save(origins[id]) end
settleAll(full, node)

redis.call(#jobs < most and 'SADD' or 'SREM', P .. 'idle', node)
wakeOne(node)
local pause = redis.call('ZRANGE', P .. 'paused', 0, 0, 'WITHSCORES')
if pause[2] then replies[1] = math.max(0, pause[2] - now) end
return replies
