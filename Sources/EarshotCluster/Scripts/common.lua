-- Functions that all scripts share. Precedes the text of each script.
--
-- A flight's key and an origin's ID have 32 hexadecimal digits, a node's ID has 16.
--
-- KEYS[1] is a prefix with a hash tag, such as `{earshot}:1:`. All keys of the cluster begin with it, so that they are in one slot.
--
--   nodes        ZSET  node -> end of its lease in ms; 0 for a node that is being reaped
--   i:NODE       STR   description of the node
--   n:NODE       SET   keys of the flights that the node wants or runs
--   f:KEY        STR   flight, see `parse`; after its end for a short while `d`, the time in ms, a line feed and its result
--   o:ORIGIN     STR   origin: limit, spacing in ms, running attempts, earliest next start, end of the cool-down, refusals in a row, lanes
--                      with queued flights
--   q:ORIGINLANE ZSET  queued flights of one lane: key -> arrival in ms, less 5,000 for each class
--   ready:       ZSET  origins with a queued flight that any node may start now -> score of its first flight
--   ready:NODE   ZSET  the same for lanes of one node
--   paused       ZSET  origins with a lane that opens by time -> that time
--   idle         SET   nodes that found fewer flights than they have slots
--   token        STR   last fencing token
--
-- A lane is `/` (any node), `/NODE` (flights that stay on their node) or `/NODE!` (the same with credentials: cool-downs do not apply).

local P = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Milliseconds of waiting that one class outweighs.
local CLASS = 5000

local function key(kind, name) return P .. kind .. ':' .. name end

-- Whether the node has a lease. One that expired counts until the node is reaped.
local function isMember(node)
  local deadline = redis.call('ZSCORE', P .. 'nodes', node)
  return deadline and tonumber(deadline) > 0
end

local LOST = {err = 'LOST the node has no lease; join again under another ID'}

-- A flight is one string, because that costs half of a hash. A line has, in characters of fixed places, its state (1: q queued, r
-- running, d ended), origin (3 to 34), class (36), arrival in ms (38 to 50), running node or hyphens (52 to 67), fencing token (69 to 84);
-- and then its lane, a space, and the nodes that want it, each followed by a comma. After the line follows the record for the node
-- that fetches it.
local NONE = '---------------- 0000000000000000'

-- Fencing token of a decimal number, in 16 digits.
local function padded(token) return #token < 16 and string.rep('0', 16 - #token) .. token or token end

-- Flight of a text; nil without a text.
local function parse(name, text)
  if not text then return nil end
  local state = string.sub(text, 1, 1)
  if state == 'd' then
    local time, from = string.match(text, '^(%d+)\n()', 3)
    return {state = 'd', arrival = tonumber(time), text = text, from = from}
  end
  local lane, wants, from = string.match(text, '^(%S+) (%S*)\n()', 86)
  return {
    name = name, state = state, o = string.sub(text, 3, 34), class = tonumber(string.sub(text, 36, 36)), node = string.sub(text, 52, 67),
    token = string.sub(text, 69, 84), lane = lane, wants = wants, text = text, from = from,
  }
end

local function read(name) return parse(name, redis.call('GET', key('f', name))) end

-- Texts of flights whose keys are 32 characters of some arguments. One call of MGET costs less than many of GET.
local function readAll(first)
  local names = {}
  for i = first, #ARGV, 2 do names[#names + 1] = key('f', string.sub(ARGV[i], 1, 32)) end
  return #names > 0 and redis.call('MGET', unpack(names)) or {}
end

-- Record of a flight, or the result of one that ended.
local function record(f) return string.sub(f.text, f.from) end

local function text(f)
  return f.state .. string.sub(f.text, 2, 35) .. f.class .. string.sub(f.text, 37, 51) .. f.node .. ' ' .. f.token .. ' ' .. f.lane .. ' '
    .. f.wants .. '\n' .. record(f)
end

local function write(f) redis.call('SET', key('f', f.name), text(f)) end

local function score(f) return string.format('%d', string.sub(f.text, 38, 50) - f.class * CLASS) end

local function send(node, message) redis.call('PUBLISH', P .. 'c:' .. node, message) end

-- Origins that this call has read.
local origins = {}

local function origin(id)
  local o = origins[id]
  if o then return o end
  o = {id = id, l = 1, s = 0, r = 0, n = 0, c = 0, k = 0, lanes = ''}
  local text = redis.call('GET', key('o', id))
  if text then
    local l, s, r, n, c, k, lanes = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S*)$')
    o.l, o.s, o.r, o.n, o.c, o.k = tonumber(l), tonumber(s), tonumber(r), tonumber(n), tonumber(c), tonumber(k)
    o.lanes = lanes
  else
    o.isNew = true
  end
  origins[id] = o
  return o
end

local function save(o)
  local text = string.format('%d %d %d %d %d %d %s', o.l, o.s, o.r, o.n, o.c, o.k, o.lanes)
  if o.r > 0 or o.lanes ~= '' then
    redis.call('SET', key('o', o.id), text)
    return
  end
  -- Refusals are remembered for a minute after the cool-down.
  local rest = math.max(o.n, o.k > 0 and o.c + 60000 or 0) - now
  if rest > 0 then
    redis.call('SET', key('o', o.id), text, 'PX', rest)
  elseif not o.isNew then
    redis.call('DEL', key('o', o.id))
  end
end

local function isGated(lane) return string.sub(lane, -1) ~= '!' end

-- Time at which a flight of this lane may start, perhaps past; nil while the limit is reached. After a refusal one flight at a time
-- starts, until the origin answers.
local function opening(o, lane)
  local isGated = isGated(lane)
  if o.r >= (isGated and o.k > 0 and 1 or o.l) then return nil end
  return isGated and math.max(o.n, o.c) or o.n
end

-- Key and member of a lane in the tables `ready`.
local function ready(o, lane)
  local node, mark = string.match(lane, '^/(%x*)(!?)$')
  return P .. 'ready:' .. node, o.id .. mark, node
end

local function queue(o, lane) return key('q', o.id .. lane) end

local function addLane(o, lane)
  -- Lanes end where the next one begins, so `/` needs a look at the characters that follow it.
  for other in string.gmatch(o.lanes, '/%x*!?') do
    if other == lane then return false end
  end
  o.lanes = o.lanes .. lane
  return true
end

-- Brings the tables `ready` and `paused` up to date after a change of limit, times or queues, and saves the origin.
local function settle(o, caller)
  local lanes, wake = '', nil
  for lane in string.gmatch(o.lanes, '/%x*!?') do
    local head = redis.call('ZRANGE', queue(o, lane), 0, 0, 'WITHSCORES')
    local name, member, node = ready(o, lane)
    local at = nil
    if head[1] then
      lanes = lanes .. lane
      at = opening(o, lane)
    end
    if at and at <= now then
      if redis.call('ZADD', name, head[2], member) == 1 and node ~= '' and node ~= caller then send(node, 'w') end
    else
      redis.call('ZREM', name, member)
      if at and (not wake or at < wake) then wake = at end
    end
  end
  o.lanes = lanes
  if wake then
    redis.call('ZADD', P .. 'paused', wake, o.id)
  elseif o.wasPaused then
    redis.call('ZREM', P .. 'paused', o.id)
  end
  save(o)
end

local function settleAll(list, caller)
  for id in pairs(list) do settle(origins[id], caller) end
end

-- Puts a flight that ran back into its queue.
local function requeue(o, f)
  f.state, f.node, f.token = 'q', string.sub(NONE, 1, 16), string.sub(NONE, 18)
  write(f)
  redis.call('ZADD', queue(o, f.lane), score(f), f.name)
  addLane(o, f.lane)
end

-- Whether `node` is in a list of nodes, and that list without it.
local function isIn(list, node) return string.find(list, node .. ',', 1, true) ~= nil end

local function without(list, node)
  local from, to = string.find(list, node .. ',', 1, true)
  return from and string.sub(list, 1, from - 1) .. string.sub(list, to + 1) or list
end

-- Wakes one node that has free slots, if any node may start a flight.
local function wakeOne(caller)
  if redis.call('EXISTS', P .. 'ready:') == 0 then return end
  local node = redis.call('SPOP', P .. 'idle')
  if node and node ~= caller then send(node, 'w') end
end
