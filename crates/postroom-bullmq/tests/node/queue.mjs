// Does things with a queue, one after the other, and prints what came of each as a JSON array.
import { createRequire } from 'node:module';

const [modules, text] = process.argv.slice(2);
const { Queue } = createRequire(`${modules}/`)('bullmq');
const { port, queue: name, prefix, steps } = JSON.parse(text);
const queue = new Queue(name, { connection: { host: '127.0.0.1', port }, prefix });

const does = {
  add: async (job, data, options) => (await queue.add(job, data, options)).id,
  addMany: async jobs => (await queue.addBulk(jobs)).length,
  job: async id => {
    const job = await queue.getJob(id);
    if (!job) return null;
    const { name, data, opts, timestamp, delay, priority, returnvalue, failedReason } = job;
    const { attemptsMade, attemptsStarted, stalledCounter, processedBy } = job;
    const state = await job.getState();
    return { id, name, data, opts, timestamp, delay, priority, returnvalue, failedReason,
      attemptsMade, attemptsStarted, stalledCounter, processedBy, state };
  },
  counts: () => queue.getJobCounts(),
  pause: () => queue.pause(),
  resume: () => queue.resume(),
};

const results = [];
for (const [step, ...values] of steps) results.push((await does[step](...values)) ?? null);
console.log(JSON.stringify(results));
await queue.close();
