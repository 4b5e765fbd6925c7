-- Carries out the calls of a node in one pass of its event loop, in order, as one step.
--
-- ARGV: node, then for each call: the name of its function, the number of its arguments, and these.
--
-- Returns the replies. A node without a lease gets an error instead; calls before that one were carried out.

local calls = {want = want, unwant = unwant, take = take, done = done, cool = cool}
local replies, at = {}, 2
count('c', ARGV[1])
while ARGV[at] do
  local last = at + 1 + tonumber(ARGV[at + 1])
  local reply = calls[ARGV[at]](ARGV[1], at + 2, last)
  if type(reply) == 'table' and reply.err then
    finish()
    return reply
  end
  replies[#replies + 1] = reply
  endCall()
  at = last + 1
end
finish()
return replies
