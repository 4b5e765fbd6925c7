-- Functions that all scripts share. Precedes the text of each script.
--
-- A flight's key and an origin's ID have 32 hexadecimal digits, a node's ID has 16.
--
-- KEYS[1] is a prefix with a hash tag, such as `{earshot}:2:`. All keys of the cluster begin with it, so that they are in one slot.
--
--   nodes        ZSET  node -> end of its lease in ms; 0 for a node that is being reaped
--   i:NODE       STR   description of the node
--   n:NODE       SET   keys of the flights that the node wants or runs
--   f            HASH  key of a flight -> see `parse`
--   d            HASH  key of a flight -> its result: the time of its end in ms, a line feed, and the result; empty -> beginning of
--                      the table
--   e            HASH  the same for older results: renew.lua renames `d` now and then, so that many results leave with one command
--   o            HASH  origin with attempts or queued flights -> see `parseOrigin`
--   o:ORIGIN     STR   the same for an origin without them, while its pauses are remembered
--   q:ORIGINLANE ZSET  queued flights of one lane: key -> arrival in ms, less 5,000 for each class
--   h:NODE       ZSET  share of one node in the queues of the lanes `/`: the flights that it wants, with the same scores
--   ready:       ZSET  origins with a queued flight that any node may start now -> score of its first flight
--   ready:NODE   ZSET  the same for lanes of one node
--   paused       ZSET  origins with a lane that opens by time -> that time
--   idle         ZSET  nodes that found fewer flights than they have slots -> time of their question in ms
--   counts       ZSET  c and a node -> calls of the script `pass` by it; m and a node -> messages to it
--   token        STR   last fencing token
--
-- A lane is `/` (any node), `/NODE` (flights that stay on their node) or `/NODE!` (the same with credentials: cool-downs do not apply).
--
-- All keys expire, so that a cluster whose last node died leaves nothing behind. Flights and origins are each one key, because then a
-- heartbeat prolongs them all with one command, and a call reads and writes all of its own with one. The tables `f`, `o`, `n:NODE`,
-- `ready:` and `paused` have a member with an empty name, so that they and their expiry last while a node is a member: see renew.lua.
--
-- A script reads each flight and origin once, and collects its writes of them. `writeTables` writes those of `ready:` and `paused`, and
-- `finish` at the end of the script all others.

local P = KEYS[1]
local F, O, D, E = P .. 'f', P .. 'o', P .. 'd', P .. 'e'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Milliseconds of waiting that one class outweighs.
local CLASS = 5000

-- Milliseconds until tables expire that each heartbeat of any node prolongs, and those of one node that its own heartbeats prolong. The
-- latter live longer, so that a node in `nodes` always has its tables.
local LIFE, NODE_LIFE = 600000, 1200000
-- Milliseconds until a queue expires. Wants that are asserted prolong it below half, which is longer than `LIFE`.
local QUEUE_LIFE = 3600000

local function key(kind, name) return P .. kind .. ':' .. name end

-- Whether the node has a lease. One that expired counts until the node is reaped.
local function isMember(node)
  local deadline = redis.call('ZSCORE', P .. 'nodes', node)
  return deadline and tonumber(deadline) > 0
end

local LOST = {err = 'LOST the node has no lease; join again under another ID'}

-- A flight is one string, because that costs half of a hash. A line has, in characters of fixed places, its state (1: q queued, r
-- running), origin (3 to 34), class (36), arrival in ms (38 to 50), running node or hyphens (52 to 67), fencing token (69 to 84);
-- and then its lane, a space, and the nodes that want it, each followed by a comma. After the line follows the record for the node
-- that fetches it.
local NONE = '---------------- 0000000000000000'

-- Fencing token of a decimal number, in 16 digits.
local function padded(token) return #token < 16 and string.rep('0', 16 - #token) .. token or token end

-- Flight of a text; nil without a text.
local function parse(name, text)
  if not text then return nil end
  local lane, wants, from = string.match(text, '^(%S+) (%S*)\n()', 86)
  return {
    name = name, state = string.sub(text, 1, 1), o = string.sub(text, 3, 34), class = tonumber(string.sub(text, 36, 36)),
    node = string.sub(text, 52, 67), token = string.sub(text, 69, 84), lane = lane, wants = wants, text = text, from = from,
  }
end

-- Texts of flights as this call has read or changed them; false for no flight. Keys of those that it has changed.
local texts, dirty = {}, {}

-- Reads flights at once, because one command costs less than many.
local function readAll(names)
  local unread = {}
  for _, name in ipairs(names) do
    if texts[name] == nil then unread[#unread + 1] = name end
  end
  if #unread == 0 then return end
  for i, text in ipairs(redis.call('HMGET', F, unpack(unread))) do texts[unread[i]] = text end
end

-- Reads the flights whose keys are 32 characters of every second argument.
local function readArguments(first, last)
  local names = {}
  for i = first, last, 2 do names[#names + 1] = string.sub(ARGV[i], 1, 32) end
  readAll(names)
end

local function read(name) return parse(name, texts[name]) end

-- Sets the text of a flight, or removes the flight.
local function put(name, text) texts[name], dirty[name] = text or false, true end

local function text(f)
  return f.state .. string.sub(f.text, 2, 35) .. f.class .. string.sub(f.text, 37, 51) .. f.node .. ' ' .. f.token .. ' ' .. f.lane .. ' '
    .. f.wants .. string.sub(f.text, f.from - 1)
end

local function write(f) put(f.name, text(f)) end

local function score(f) return string.format('%d', string.sub(f.text, 38, 50) - f.class * CLASS) end

-- Counts a call of a member (c) or a message to it (m). A member compares the numbers with its own.
local function count(kind, node) redis.call('ZADD', P .. 'counts', 'XX', 'INCR', 1, kind .. node) end

local function send(node, message)
  redis.call('PUBLISH', P .. 'c:' .. node, message)
  count('m', node)
end

-- Origins that this call has read, and those that it has changed.
local origins, saves = {}, {}
-- Origins with a pause that was cut.
local cuts = {}

-- Origin of a text: limit, spacing in ms, running attempts, earliest next start, time until which its queues last, lanes with queued
-- flights; and after a refusal: end of the cool-down, refusals in a row, last token at the last refusal, beginning of the cool-down.
-- All times are in ms.
--
-- If the engine's clock went back, the pauses are cut to their lengths.
local function parseOrigin(id, text)
  local l, s, r, n, e, lanes, from = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S*)()')
  local o = {
    id = id, l = tonumber(l), s = tonumber(s), r = tonumber(r), n = tonumber(n), e = tonumber(e), lanes = lanes, c = 0, k = 0, t = 0,
    b = 0,
  }
  local isCut = false
  if from <= #text then
    local c, k, t, b = string.match(text, '^ (%d+) (%d+) (%d+) (%d+)$', from)
    o.c, o.k, o.t, o.b = tonumber(c), tonumber(k), tonumber(t), tonumber(b)
  end
  if o.b > now then o.c, o.b, isCut = now + o.c - o.b, now, true end
  if o.n > now + o.s then o.n, isCut = now + o.s, true end
  if isCut then cuts[id], saves[id], o.wasPaused = true, o, true end
  return o
end

-- Reads origins at once.
local function readOrigins(ids)
  local unread = {}
  for _, id in ipairs(ids) do
    if origins[id] == nil then unread[#unread + 1], origins[id] = id, false end
  end
  if #unread == 0 then return end
  local others, names
  for i, text in ipairs(redis.call('HMGET', O, unpack(unread))) do
    local id = unread[i]
    if text then
      local o = parseOrigin(id, text)
      o.isActive = true
      origins[id] = o
    else
      if not others then others, names = {}, {} end
      others[#others + 1], names[#names + 1] = id, key('o', id)
    end
  end
  if not others then return end
  for i, text in ipairs(redis.call('MGET', unpack(names))) do
    local id = others[i]
    local o
    if text then
      o = parseOrigin(id, text)
      o.isRemembered = true
    else
      o = {id = id, l = 1, s = 0, r = 0, n = 0, c = 0, k = 0, t = 0, b = 0, e = 0, lanes = '', isNew = true}
    end
    origins[id] = o
  end
end

local function origin(id)
  if not origins[id] then readOrigins({id}) end
  return origins[id]
end

local function save(o) saves[o.id] = o end

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
  if lane == '/' then return P .. 'ready:', o.id, '' end
  local node, mark = string.match(lane, '^/(%x*)(!?)$')
  return P .. 'ready:' .. node, o.id .. mark, node
end

local function queue(o, lane) return key('q', o.id .. lane) end

-- Queues that this call has made.
local newQueues = {}

-- Adds a lane whose first flight is queued in this call.
local function addLane(o, lane)
  -- Lanes end where the next one begins, so `/` needs a look at the characters that follow it.
  for other in string.gmatch(o.lanes, '/%x*!?') do
    if other == lane then return false end
  end
  if o.lanes == '' then o.e = now + QUEUE_LIFE end
  o.lanes = o.lanes .. lane
  newQueues[#newQueues + 1] = queue(o, lane)
  return true
end

-- Changes of the tables `ready:` and `paused`: scores by origin, or false.
local shared, pauses = {}, {}

-- Adds a lane to its table `ready`, and notifies the node of a lane that stays on it.
local function setReady(o, lane, score, caller)
  local name, member, node = ready(o, lane)
  if node == '' then
    shared[member] = score
  else
    if redis.call('ZADD', name, score, member) == 1 and node ~= caller then send(node, 'w') end
    redis.call('PEXPIRE', name, NODE_LIFE)
  end
end

local function removeReady(o, lane)
  local name, member, node = ready(o, lane)
  if node == '' then shared[member] = false else redis.call('ZREM', name, member) end
end

-- First entry of the table `paused` as this call has read it; nil if it may have changed.
local firstPause

-- Time at which the first paused origin opens; later than any time for none.
local function firstOpening()
  firstPause = firstPause or redis.call('ZRANGE', P .. 'paused', 0, 0, 'WITHSCORES')
  return tonumber(firstPause[2] or '+inf')
end

-- Changes of the nodes' shares: scores by flight, or false.
local shares = {}

-- Notes for the share of a node that a flight of the lane `/` is queued with this score, or is not (false).
local function setShare(node, name, score)
  local changes = shares[node]
  if not changes then
    changes = {}
    shares[node] = changes
  end
  changes[name] = score
end

-- The same for several nodes, each followed by a comma.
local function setShares(nodes, name, score)
  for node in string.gmatch(nodes, '%x+') do setShare(node, name, score) end
end

-- Writes changes of a table.
local function writeTable(name, changes)
  local sets, drops = {}, {}
  for member, score in pairs(changes) do
    if score then
      sets[#sets + 1], sets[#sets + 2] = score, member
    else
      drops[#drops + 1] = member
    end
  end
  if #sets > 0 then redis.call('ZADD', name, unpack(sets)) end
  if #drops > 0 then redis.call('ZREM', name, unpack(drops)) end
end

local function writeShares()
  for node, changes in pairs(shares) do
    writeTable(key('h', node), changes)
    redis.call('PEXPIRE', key('h', node), NODE_LIFE)
  end
  shares = {}
end

local function writeTables()
  if next(shared) then
    writeTable(P .. 'ready:', shared)
    shared = {}
  end
  if next(pauses) then
    writeTable(P .. 'paused', pauses)
    pauses, firstPause = {}, nil
  end
end

-- Brings the tables `ready` and `paused` up to date after a change of limit, times or queues, and saves the origin.
local function updateOrigin(o, caller)
  local lanes, wake = '', nil
  for lane in string.gmatch(o.lanes, '/%x*!?') do
    local head = redis.call('ZRANGE', queue(o, lane), 0, 0, 'WITHSCORES')
    local at = nil
    if head[1] then
      lanes = lanes .. lane
      at = opening(o, lane)
    end
    if at and at <= now then
      setReady(o, lane, head[2], caller)
    else
      removeReady(o, lane)
      if at and (not wake or at < wake) then wake = at end
    end
  end
  o.lanes = lanes
  if wake then
    pauses[o.id] = string.format('%d', wake)
  elseif o.wasPaused then
    pauses[o.id] = false
  end
  save(o)
end

-- Settles origins of a list, and those with a pause that was cut. Writes the changes of all tables of queues.
local function updateOrigins(list, caller)
  for id in pairs(cuts) do list[id] = true end
  cuts = {}
  for id in pairs(list) do updateOrigin(origins[id], caller) end
  writeTables()
  writeShares()
end

-- Milliseconds for which an origin without attempts and queued flights is remembered: its spacing, and its refusals until a minute
-- after the cool-down.
local function memory(o) return math.max(o.n, o.k > 0 and o.c + 60000 or 0) - now end

-- Brings the origins to the state in which the next call would read them.
local function endCall()
  for _, o in pairs(origins) do o.wasPaused = false end
  for _, o in pairs(saves) do
    if o.r > 0 or o.lanes ~= '' or memory(o) > 0 then
      o.isNew = false
    else
      o.l, o.s, o.n, o.c, o.k, o.t, o.b, o.e, o.isNew = 1, 0, 0, 0, 0, 0, 0, 0, true
    end
  end
end

-- Writes everything that this script has changed.
local function finish()
  if next(dirty) then
    local sets, drops = {}, {}
    for name in pairs(dirty) do
      if texts[name] then sets[#sets + 1], sets[#sets + 2] = name, texts[name] else drops[#drops + 1] = name end
    end
    if #drops > 0 then redis.call('HDEL', F, unpack(drops)) end
    if #sets > 0 then redis.call('HSET', F, unpack(sets)) end
  end
  local sets, drops, forgotten = {}, {}, {}
  for id, o in pairs(saves) do
    local text = string.format('%d %d %d %d %d %s', o.l, o.s, o.r, o.n, o.e, o.lanes)
    if o.t > 0 then text = text .. string.format(' %d %d %d %d', o.c, o.k, o.t, o.b) end
    if o.r > 0 or o.lanes ~= '' then
      sets[#sets + 1], sets[#sets + 2] = id, text
      if o.isRemembered then forgotten[#forgotten + 1] = key('o', id) end
    else
      if o.isActive then drops[#drops + 1] = id end
      local rest = memory(o)
      if rest > 0 then
        redis.call('SET', key('o', id), text, 'PX', rest)
      elseif o.isRemembered then
        forgotten[#forgotten + 1] = key('o', id)
      end
    end
  end
  if #drops > 0 then redis.call('HDEL', O, unpack(drops)) end
  if #forgotten > 0 then redis.call('DEL', unpack(forgotten)) end
  if #sets > 0 then redis.call('HSET', O, unpack(sets)) end
  for _, name in ipairs(newQueues) do redis.call('PEXPIRE', name, QUEUE_LIFE) end
end

-- Puts a flight that ran back into its queue.
local function requeue(o, f)
  f.state, f.node, f.token = 'q', string.sub(NONE, 1, 16), string.sub(NONE, 18)
  write(f)
  redis.call('ZADD', queue(o, f.lane), score(f), f.name)
  if f.lane == '/' then setShares(f.wants, f.name, score(f)) end
  addLane(o, f.lane)
end

-- Adds flights to those of a node.
local function relate(node, names)
  if #names > 0 then redis.call('SADD', key('n', node), unpack(names)) end
end

-- Adds a node to those that wait for work.
local function addIdle(node)
  if redis.call('ZADD', P .. 'idle', now, node) == 1 then redis.call('PEXPIRE', P .. 'idle', LIFE) end
end

local function removeIdle(node) redis.call('ZREM', P .. 'idle', node) end

-- Whether `node` is in a list of nodes, and that list without it.
local function isIn(list, node) return string.find(list, node .. ',', 1, true) ~= nil end

local function without(list, node)
  local from, to = string.find(list, node .. ',', 1, true)
  return from and string.sub(list, 1, from - 1) .. string.sub(list, to + 1) or list
end

local function wake(node)
  removeIdle(node)
  send(node, 'w')
end

-- Wakes one node other than the caller that has free slots, if any node may start a flight: the one that asked the longest ago.
local function wakeOne(caller)
  if redis.call('ZCARD', P .. 'ready:') < 2 then return end
  for _, node in ipairs(redis.call('ZRANGE', P .. 'idle', 0, 1)) do
    if node ~= caller then return wake(node) end
  end
end
