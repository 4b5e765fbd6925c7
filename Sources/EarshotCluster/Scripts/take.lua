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

-- Lanes with a flight that may start: the first flights of each, and how many were taken.
local lanes = {}

local function look(name, owner)
  for _, member in ipairs(redis.call('ZRANGE', name, 0, most - 1)) do
    local id = string.match(member, '^%x+')
    local lane = '/' .. owner .. (id ~= member and '!' or '')
    local o = origin(id)
    local heads = redis.call('ZRANGE', queue(o, lane), 0, most, 'WITHSCORES')
    lanes[#lanes + 1] = {o = o, lane = lane, heads = heads, taken = 0, score = tonumber(heads[2])}
  end
end

if most > 0 then
  look(P .. 'ready:', '')
  look(P .. 'ready:' .. node, node)
end

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
    jobs[#jobs + 1] = next.heads[2 * next.taken + 1]
    next.taken = next.taken + 1
    next.score = tonumber(next.heads[2 * next.taken + 2])
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
  redis.call('SET', P .. 'token', string.format('%.0f', token + #jobs - 1))
  local foreign = {}
  for i, name in ipairs(jobs) do
    local f = read(name)
    f.state, f.node, f.token = 'r', node, string.format('%.0f', token + i - 1)
    write(f)
    local isOwn = isIn(f.wants, node)
    if not isOwn then foreign[#foreign + 1] = name end
    replies[2 * i] = name .. ' ' .. f.token .. ' ' .. f.class .. (isOwn and ' 1' or ' 0')
    replies[2 * i + 1] = isOwn and '' or record(f)
  end
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
    local head = lane.heads[2 * lane.taken + 2]
    local name, member = ready(o, lane.lane)
    if head then
      redis.call('ZADD', name, head, member)
    else
      -- All flights of the lane were taken, since one more than the slots was read.
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
