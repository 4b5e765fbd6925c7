-- Ends attempts, and delivers their results to the nodes that want them. An attempt whose token is stale changes nothing.
--
-- Arguments: for each attempt two texts: key, fencing token, r with a result or c without one
-- (cancelled or returned: the flight is queued again if a node wants it), 1 if the origin answered without refusing; and the result.
-- With k, the token is the milliseconds since an attempt ended without the engine. Its result is kept for wants that had begun before,
-- unless the flight waits or runs, or a younger result is known.
--
-- Wakes no node: the caller asks for flights next, and that call wakes another one for those that it leaves.
--
-- Returns 1 for each attempt that had the flight or whose result is kept, 0 for another one.
local function done(node, first, last)
  local ended = string.format('%d', now) .. '\n'
  local replies, changed, checked, results = {}, {}, {}, {}
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
  readArguments(first, last)
  local ids = {}
  for i = first, last, 2 do
    local text = texts[string.sub(ARGV[i], 1, 32)]
    if text then ids[#ids + 1] = string.sub(text, 3, 34) end
  end
  readOrigins(ids)

  -- Flights that have ended in this call with a result.
  local isEnded = {}

  local function keep(name, age, result)
    if texts[name] or isEnded[name] or not isMember(node) then return 0 end
    local known = redis.call('HMGET', D, name)[1] or redis.call('HMGET', E, name)[1]
    if known and tonumber(string.match(known, '^%d+')) >= now - age then return 0 end
    redis.call('HSET', D, name, string.format('%d', now - age) .. '\n' .. result)
    return 1
  end

  for i = first, last, 2 do
    local name = string.sub(ARGV[i], 1, 32)
    local token, kind, isAnswered = string.match(ARGV[i], '^(%d+) (%a) (%d)$', 34)
    local text = texts[name]
    if kind == 'k' then
      replies[#replies + 1] = keep(name, tonumber(token), ARGV[i + 1])
    elseif not text or string.sub(text, 1, 1) ~= 'r' or string.sub(text, 52, 84) ~= node .. ' ' .. padded(token) then
      replies[#replies + 1] = 0
    else
      replies[#replies + 1] = 1
      -- Without `parse`, which makes a table.
      local o = origin(string.sub(text, 3, 34))
      local lane, wants = string.match(text, '^(%S+) (%S*)\n', 86)
      if not checked[o.id] then
        -- Only a lane that the limit kept closed before the first end can change.
        checked[o.id] = true
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
        if wants == self then
          append(left, node, name)
        else
          for wanting in string.gmatch(wants, '%x+') do
            append(left, wanting, name)
            if wanting ~= node then
              -- In parts, because each string that Lua makes costs time for each of its bytes.
              append(messages, wanting, 'r ' .. name .. ' ' .. #result .. ' ')
              append(messages, wanting, result)
            end
          end
        end
        put(name)
        if lane == '/' then
          results[#results + 1], results[#results + 2] = name, ended .. result
          isEnded[name] = true
        end
      elseif wants == '' then
        put(name)
      else
        requeue(o, read(name))
        changed[o.id] = true
      end
      if not isIn(wants, node) then append(left, node, name) end
    end
  end

  for other, names in pairs(left) do redis.call('SREM', key('n', other), unpack(names)) end
  if #results > 0 then redis.call('HSET', D, unpack(results)) end
  updateOrigins(changed, node)
  for other, parts in pairs(messages) do send(other, table.concat(parts)) end
  return replies
end
