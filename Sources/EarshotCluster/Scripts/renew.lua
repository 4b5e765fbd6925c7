-- Renews the lease of a node, or makes a node a member. One lease covers all attempts and wants of its node.
--
-- KEYS[2]: name of the version. It expires after the last member has stopped, so that other scripts may follow.
-- ARGV: node, lease in ms, 1 to join, version of the scripts and digest of the cluster's secret, description, milliseconds after which
-- results go to the table of older ones, the same while there are many results, and their number.
--
-- Returns the number of members with a lease, and of those whose lease has expired; and the numbers of calls and messages of the node, by
-- which it learns that some were lost (-1 if the engine has lost them).

local node, lease = ARGV[1], tonumber(ARGV[2])
local version = redis.call('GET', KEYS[2])
if version and version ~= ARGV[4] then return {err = 'VERSION ' .. version} end
local nodes = P .. 'nodes'
if ARGV[3] == '1' then
  -- A name that was used before is refused, because its attempts may be in the course of being returned.
  if redis.call('ZSCORE', nodes, node) and not isMember(node) then return LOST end
  -- Without any member, tables are the rest of a cluster whose nodes all died some minutes ago.
  if redis.call('EXISTS', nodes) == 0 then redis.call('UNLINK', F, O, P .. 'ready:', P .. 'paused', P .. 'idle', P .. 'counts') end
  redis.call('ZADD', P .. 'counts', 0, 'c' .. node, 0, 'm' .. node)
elseif not isMember(node) then
  return LOST
end
redis.call('SET', KEYS[2], ARGV[4], 'PX', lease * 4)
-- Settings may change after the join.
redis.call('SET', key('i', node), ARGV[5])
-- A lease of another node ends later than a new one only if the clock went back.
for _, other in ipairs(redis.call('ZRANGEBYSCORE', nodes, '(' .. now + lease, '+inf', 'LIMIT', 0, 64)) do
  redis.call('ZADD', nodes, now + lease, other)
end
redis.call('ZADD', nodes, now + lease, node)
-- Members with an empty name, which keep the tables. A hash with a value of more than 64 characters is never searched from its
-- beginning. The score is the last one.
local filler = string.rep('-', 65)
local lost = redis.call('HSET', F, '', filler) + redis.call('HSET', O, '', filler) + redis.call('ZADD', P .. 'ready:', '+inf', '')
  + redis.call('ZADD', P .. 'paused', '+inf', '') + redis.call('SADD', key('n', node), '')
if lost > 0 and ARGV[3] ~= '1' then
  -- A table was deleted or evicted. All nodes join again and assert what it had.
  redis.call('DEL', nodes)
  return LOST
end
-- The table of results has the times of its creation and of the latest heartbeat.
local stamp = redis.call('HMGET', D, '')[1] or ''
local created, latest = string.match(stamp, '^(%d+) (%d+)$')
created, latest = tonumber(created or now), tonumber(latest or now)
local age = now - created
if now < latest then
  -- The clock went back. Results would seem younger than they are, and answer wants that began after them.
  redis.call('UNLINK', D, E)
  created = now
elseif age >= tonumber(ARGV[6]) or age >= tonumber(ARGV[7]) and redis.call('HLEN', D) > tonumber(ARGV[8]) then
  -- RENAME frees a table that it replaces at once, which takes long.
  redis.call('UNLINK', E)
  if stamp ~= '' then redis.call('RENAME', D, E) end
  created = now
end
redis.call('HSET', D, '', string.format('%d %d', created, now))
for _, name in ipairs({'nodes', 'f', 'o', 'd', 'e', 'ready:', 'paused', 'idle', 'counts', 'token'}) do redis.call('PEXPIRE', P .. name, LIFE) end
for _, name in ipairs({'i:', 'n:', 'h:', 'ready:'}) do redis.call('PEXPIRE', P .. name .. node, NODE_LIFE) end
local function counted(kind) return tonumber(redis.call('ZSCORE', P .. 'counts', kind .. node) or -1) end
return {redis.call('ZCOUNT', nodes, '(' .. now, '+inf'), redis.call('ZCOUNT', nodes, '-inf', now), counted('c'), counted('m')}
