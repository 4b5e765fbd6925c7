-- Begins or prolongs the cool-down of an origin that refused a request with 429 or 503. All nodes are notified.
--
-- Arguments: origin, limit and spacing in ms of an origin without a record, milliseconds that the origin asked for (0 for none),
-- first pause and longest pause in ms.
--
-- Returns the milliseconds of the pause that remain, and the number of refusals in a row.
local function cool(node, first, last)
  local id, asked = ARGV[first], tonumber(ARGV[first + 3])
  if not isMember(node) then return LOST end
  local o = origin(id)
  if o.isNew then o.l, o.s = tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2]) end
  -- Later attempts have larger tokens, also if the clock goes back.
  o.t = math.max(clock[1] * 1000000 + clock[2], tonumber(redis.call('GET', P .. 'token') or 0))
  redis.call('SET', P .. 'token', string.format('%d', o.t), 'PX', LIFE)
  if o.c <= now or asked > 0 then
    -- Attempts that ran when the origin began to refuse are refused as well, and count as one refusal.
    if o.c <= now then o.k = o.k + 1 end
    local pause = math.min(tonumber(ARGV[first + 5]), tonumber(ARGV[first + 4]) * 2 ^ math.min(o.k - 1, 30))
    local ends = now + math.max(pause, asked)
    if ends > o.c then
      o.c, o.b = ends, now
      for _, other in ipairs(redis.call('ZRANGE', P .. 'nodes', 0, 255)) do
        if other ~= node then send(other, 'c ' .. id .. ' ' .. string.format('%d', ends - now) .. ' ' .. o.k) end
      end
    end
  end
  o.wasPaused = true
  updateOrigin(o, node)
  writeTables()
  return {math.max(0, o.c - now), o.k}
end
