-- Withdraws a node's wants. A queued flight that no node wants is removed. The node that runs one is told to abort it,
-- also if it is the caller; flights of one node excepted, which that node aborts itself.
--
-- Arguments: keys. Returns the number of flights that were removed.
local function unwant(node, first, last)
  local changed, removed, gone = {}, 0, {}
  local names = {}
  for i = first, last do names[#names + 1] = ARGV[i] end
  readAll(names)
  for _, name in ipairs(names) do
    local f = read(name)
    if f and isIn(f.wants, node) then
      f.wants = without(f.wants, node)
      if f.state == 'q' and f.lane == '/' then setShare(node, name, false) end
      local isRunner = f.state == 'r' and f.node == node
      if not isRunner then gone[#gone + 1] = name end
      if f.wants ~= '' or f.state == 'r' then
        write(f)
        if f.wants == '' and (not isRunner or f.lane == '/') then send(f.node, 'x ' .. name .. ' ' .. f.token) end
      else
        redis.call('ZREM', queue(origin(f.o), f.lane), name)
        put(name)
        changed[f.o] = true
        removed = removed + 1
      end
    end
  end
  if #gone > 0 then redis.call('SREM', key('n', node), unpack(gone)) end
  updateOrigins(changed, node)
  return removed
end
