-- Returns the attempts of a node whose lease has expired to the queue, and drops its wants. A large node takes several calls.
--
-- KEYS[2]: name of the version. It ends with the last member, so that nodes with another version or secret may follow.
-- ARGV: node that leaves at once or an empty text, maximum number of flights.
--
-- Returns the number of flights, and 1 if another call is needed.

if ARGV[1] ~= '' then redis.call('ZADD', P .. 'nodes', 'XX', 0, ARGV[1]) end
local dead = redis.call('ZRANGEBYSCORE', P .. 'nodes', '-inf', now, 'LIMIT', 0, 1)[1]
if not dead then return {0, 0} end
-- From here on its calls are refused, so that nothing is added to its tables.
redis.call('ZADD', P .. 'nodes', 'XX', 0, dead)

local changed = {}
redis.call('SREM', key('n', dead), '')
local names = redis.call('SPOP', key('n', dead), ARGV[2])
readAll(names)
for _, name in ipairs(names) do
  local f = read(name)
  if f then
    local o = origin(f.o)
    local isWanted = isIn(f.wants, dead)
    f.wants = without(f.wants, dead)
    if f.state == 'r' and f.node == dead then
      o.r = math.max(0, o.r - 1)
      changed[o.id] = true
      if f.wants ~= '' then requeue(o, f) else put(name) end
    elseif f.wants ~= '' then
      if isWanted then write(f) end
    elseif f.state == 'q' then
      redis.call('ZREM', queue(o, f.lane), name)
      put(name)
      changed[o.id] = true
    elseif isWanted then
      write(f)
      send(f.node, 'x ' .. name .. ' ' .. f.token)
    end
  end
end
updateOrigins(changed, dead)
finish()

local more = redis.call('EXISTS', key('n', dead))
if more == 0 then
  redis.call('ZREM', P .. 'nodes', dead)
  redis.call('DEL', P .. 'ready:' .. dead, key('i', dead), key('h', dead))
  redis.call('ZREM', P .. 'counts', 'c' .. dead, 'm' .. dead)
  removeIdle(dead)
  more = redis.call('ZCOUNT', P .. 'nodes', '-inf', now) > 0 and 1 or 0
end
wakeOne('')
if redis.call('ZCOUNT', P .. 'nodes', '(' .. now, '+inf') == 0 then redis.call('DEL', KEYS[2]) end
return {#names, more}
