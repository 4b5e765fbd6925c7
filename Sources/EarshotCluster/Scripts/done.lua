-- Ends attempts, and delivers their results to the nodes that want them. An attempt whose token is stale changes nothing.
--
-- ARGV: node, milliseconds to keep results, then for each attempt two texts: key, fencing token, r with a result or c without one
-- (cancelled or returned: the flight is queued again if a node wants it), 1 if the origin answered without refusing; and the result.
--
-- Wakes no node: the caller asks for flights next, and that call wakes another one for those that it leaves.
--
-- Returns 1 for each attempt that had the flight, 0 for a stale one.

local node, lasts = ARGV[1], ARGV[2]
local ended = string.format('%d', now) .. '\n'
local replies, changed = {}, {}
-- Messages and keys by node.
local messages, left = {}, {}

local function append(table, index, value)
  local list = table[index]
  if not list then
    list = {}
    table[index] = list
  end
  list[#list + 1] = value
end

local self = node .. ','
readArguments(3)
local ids = {}
for i = 3, #ARGV, 2 do
  local text = texts[string.sub(ARGV[i], 1, 32)]
  if text then ids[#ids + 1] = string.sub(text, 3, 34) end
end
readOrigins(ids)
for i = 3, #ARGV, 2 do
  local name = string.sub(ARGV[i], 1, 32)
  local token, kind, isAnswered = string.match(ARGV[i], '^(%d+) (%a) (%d)$', 34)
  local f = read(name)
  if not f or f.state ~= 'r' or f.node ~= node or f.token ~= padded(token) then
    replies[#replies + 1] = 0
  else
    replies[#replies + 1] = 1
    local o = origin(f.o)
    if not o.isChecked then
      -- Only a lane that the limit kept closed before the first end can change.
      o.isChecked = true
      for lane in string.gmatch(o.lanes, '/%x*!?') do
        if not opening(o, lane) then changed[o.id] = true end
      end
    end
    o.r = math.max(0, o.r - 1)
    -- An attempt that started before the last refusal says nothing about the origin since.
    if isAnswered == '1' and o.k > 0 and tonumber(token) > o.t then
      o.k = 0
      changed[o.id] = true
    end
    save(o)
    if kind == 'r' then
      local result = ARGV[i + 1]
      if f.wants == self then
        append(left, node, name)
      else
        for wanting in string.gmatch(f.wants, '%x+') do
          append(left, wanting, name)
          if wanting ~= node then append(messages, wanting, 'r ' .. name .. ' ' .. #result .. ' ' .. result) end
        end
      end
      put(name)
      if f.lane == '/' then redis.call('SET', key('d', name), ended .. result, 'PX', lasts) end
    elseif f.wants == '' then
      put(name)
    else
      requeue(o, f)
      changed[o.id] = true
    end
    if not isIn(f.wants, node) then append(left, node, name) end
  end
end

for other, names in pairs(left) do redis.call('SREM', key('n', other), unpack(names)) end
settleAll(changed, node)
finish()
for other, parts in pairs(messages) do send(other, table.concat(parts)) end
return replies
