-- Where jobs are.
-- KEYS: completed, failed
-- ARGV: what keys of jobs begin with, what a dropped job returns, then the ids
-- Returns of each job its state (0 gone, 1 live, 2 completed, 3 failed, 4 dropped), reason and stack
-- trace.
local completed, failed = unpack(KEYS)
local prefix, dropped = ARGV[1], ARGV[2]
local call = redis.call
local answers = {}
for i = 3, #ARGV do
  local job = ARGV[i]
  local key = prefix .. job
  local answer
  if call('EXISTS', key) == 0 then
    answer = {0, '', ''}
  elseif call('ZSCORE', completed, job) then
    answer = {call('HGET', key, 'returnvalue') == dropped and 4 or 2, '', ''}
  elseif call('ZSCORE', failed, job) then
    local said = call('HMGET', key, 'failedReason', 'stacktrace')
    answer = {3, said[1] or '', said[2] or ''}
  else
    answer = {1, '', ''}
  end
  answers[#answers + 1] = answer
end
return answers
