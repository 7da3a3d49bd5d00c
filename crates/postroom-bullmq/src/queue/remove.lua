-- Removes jobs that have finished, with all their keys. Others stay.
-- KEYS: completed, failed, meta, events
-- ARGV: what keys of jobs begin with, then the ids
local completed, failed, meta, events = unpack(KEYS)
local prefix = ARGV[1]
local call = redis.call
local kept = call('HGET', meta, 'opts.maxLenEvents') or 10000
for i = 2, #ARGV do
  local job = ARGV[i]
  local was
  if call('ZREM', completed, job) == 1 then
    was = 'completed'
  elseif call('ZREM', failed, job) == 1 then
    was = 'failed'
  end
  if was then
    local key = prefix .. job
    call('DEL', key, key .. ':logs', key .. ':dependencies', key .. ':processed',
      key .. ':failed', key .. ':unsuccessful')
    call('XADD', events, 'MAXLEN', '~', kept, '*', 'event', 'removed', 'jobId', job, 'prev', was)
  end
end
return 0
