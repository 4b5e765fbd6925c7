-- Reports the members and the backlog of the cluster, for operators. Changes nothing.
--
-- ARGV: node.
--
-- Returns the numbers of flights (queued or running), of origins with flights, and of paused origins; then four values for each member:
-- its ID, the milliseconds until its lease ends, the number of flights that it wants or runs, and its description.

if not isMember(ARGV[1]) then return LOST end
local function count(command, name) return math.max(0, redis.call(command, P .. name) - 1) end

local replies = {count('HLEN', 'f'), count('HLEN', 'o'), count('ZCARD', 'paused')}
local nodes = redis.call('ZRANGE', P .. 'nodes', 0, 255, 'WITHSCORES')
for i = 1, #nodes, 2 do
  local node = nodes[i]
  replies[#replies + 1] = node
  replies[#replies + 1] = math.max(0, tonumber(nodes[i + 1]) - now)
  replies[#replies + 1] = math.max(0, redis.call('SCARD', key('n', node)) - 1)
  replies[#replies + 1] = redis.call('GET', key('i', node)) or ''
end
return replies
