// A worker that somebody has had for long. It knows the shape of its jobs, and nothing of Postroom.
import { createRequire } from 'node:module';

const [modules, text] = process.argv.slice(2);
const { Worker, UnrecoverableError } = createRequire(`${modules}/`)('bullmq');
const { port, queue, ...options } = JSON.parse(text);

const worker = new Worker(
  queue,
  async job => {
    const { outboxId, eventType, payload, sourceEventId } = job.data;
    console.log('started', job.id);
    if (eventType === 'fail') throw new Error(payload.reason);
    if (eventType === 'never') throw new UnrecoverableError(payload.reason);
    if (eventType === 'hang') await new Promise(() => {});
    console.log('delivered', outboxId, sourceEventId);
  },
  { connection: { host: '127.0.0.1', port, maxRetriesPerRequest: null }, ...options },
);
worker.on('error', () => {});
await worker.waitUntilReady();
console.log('ready');
