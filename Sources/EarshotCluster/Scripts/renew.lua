-- Renews the lease of a node, or makes a node a member. One lease covers all attempts and wants of its node.
--
-- KEYS[2]: name of the version. It expires after the last member has stopped, so that other scripts may follow.
-- ARGV: node, lease in ms, 1 to join, version of the scripts and digest of the cluster's secret, description.
--
-- Returns the number of members with a lease, and of those whose lease has expired.

local node, lease = ARGV[1], tonumber(ARGV[2])
local version = redis.call('GET', KEYS[2])
if version and version ~= ARGV[4] then return {err = 'VERSION ' .. version} end
if ARGV[3] == '1' then
  -- A name that was used before is refused, because its attempts may be in the course of being returned.
  if redis.call('ZSCORE', P .. 'nodes', node) and not isMember(node) then return LOST end
  redis.call('SET', key('i', node), ARGV[5])
elseif not isMember(node) then
  return LOST
end
redis.call('SET', KEYS[2], ARGV[4], 'PX', lease * 4)
redis.call('ZADD', P .. 'nodes', now + lease, node)
return {redis.call('ZCOUNT', P .. 'nodes', '(' .. now, '+inf'), redis.call('ZCOUNT', P .. 'nodes', '-inf', now)}
