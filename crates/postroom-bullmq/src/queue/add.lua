-- Adds jobs that are to run at once, each unless a job of its id is there already.
-- KEYS: wait, paused, meta, id, active, events, marker
-- ARGV: what keys of jobs begin with, the time in ms, then of each job: id, name, data, options,
--   attempts that failed before
-- Returns of each job whether it is new: 1 or 0.
local wait, paused, meta, id, active, events, marker = unpack(KEYS)
local prefix, now = ARGV[1], ARGV[2]
local call = redis.call

local settings = call('HMGET', meta, 'paused', 'concurrency', 'opts.maxLenEvents')
local is_paused, concurrency, kept = settings[1], settings[2], settings[3]
if not kept then
  kept = 10000
  call('HSET', meta, 'opts.maxLenEvents', kept)
end

-- A script that fails halfway leaves what it has written: jobs that exist and wait nowhere, so that
-- nobody ever runs them. What may be of a wrong type is asked before.
call('LLEN', is_paused and paused or wait)
call('XLEN', events)
call('INCRBY', id, 0)

local answers, added = {}, {}
for i = 3, #ARGV, 5 do
  local job, name = ARGV[i], ARGV[i + 1]
  local key = prefix .. job
  if call('EXISTS', key) == 1 then
    call('XADD', events, 'MAXLEN', '~', kept, '*', 'event', 'duplicated', 'jobId', job)
    answers[#answers + 1] = 0
  else
    call('HSET', key, 'name', name, 'data', ARGV[i + 2], 'opts', ARGV[i + 3],
      'timestamp', now, 'delay', 0, 'priority', 0)
    if ARGV[i + 4] ~= '0' then
      -- BullMQ leaves fields alone that it does not know.
      call('HSET', key, 'postroom:failed', ARGV[i + 4])
    end
    call('XADD', events, '*', 'event', 'added', 'jobId', job, 'name', name)
    call('XADD', events, 'MAXLEN', '~', kept, '*', 'event', 'waiting', 'jobId', job)
    added[#added + 1] = job
    answers[#answers + 1] = 1
  end
end

if #added > 0 then
  -- Jobs without an id of their own are numbered by this; BullMQ counts every job.
  call('INCRBY', id, #added)
  -- While a queue is paused BullMQ 5 looks here, and its resume renames this over `wait`, so
  -- that what stands there is lost; the resume of BullMQ 6 takes both.
  call('LPUSH', is_paused and paused or wait, unpack(added))
  local is_maxed = concurrency and call('LLEN', active) >= tonumber(concurrency)
  if not is_paused and not is_maxed then
    call('ZADD', marker, 0, '0')
  end
end
return answers
