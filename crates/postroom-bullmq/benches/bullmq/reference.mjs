// npm's BullMQ, which adds jobs and runs them as it is told on standard input.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [modules, text] = process.argv.slice(2);
const { Queue, Worker } = createRequire(`${modules}/`)('bullmq');
const { port, queue: name, jobs: count, call, calls, concurrency } = JSON.parse(text);
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const queue = new Queue(name, { connection });
await queue.waitUntilReady();

const jobs = Array.from({ length: count }, (_, n) => ({
  name: 'order.placed',
  data: { outboxId: `job-${n}`, payload: { text: 'x'.repeat(300) } },
  opts: { jobId: `job-${n}`, attempts: 1, removeOnComplete: true, removeOnFail: false },
}));

async function add() {
  let next = 0;
  const one = async () => {
    while (next < count) {
      const from = next;
      next += call;
      await queue.addBulk(jobs.slice(from, from + call));
    }
  };
  await Promise.all(Array.from({ length: calls }, one));
}

let worker;
const does = {
  add: async () => (await add(), 'added'),
  work: async () => {
    worker = new Worker(name, async () => {}, { connection, concurrency });
    await worker.waitUntilReady();
    return 'working';
  },
  stop: async () => (await worker.close(), 'stopped'),
};

console.log('ready');
for await (const line of createInterface({ input: process.stdin })) console.log(await does[line]());
