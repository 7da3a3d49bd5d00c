// A worker that somebody has had for long. It appends what it gets to a file.
import { appendFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const [modules, text] = process.argv.slice(2);
const { Worker } = createRequire(`${modules}/`)('bullmq');
const { port, queue, file } = JSON.parse(text);
const worker = new Worker(
  queue,
  async job => appendFileSync(file, `${JSON.stringify(job.data)}\n`),
  {
    connection: { host: '127.0.0.1', port, maxRetriesPerRequest: null },
    concurrency: 8, lockDuration: 5000, stalledInterval: 5000,
  },
);
worker.on('error', () => {});
await worker.waitUntilReady();
console.log('ready');
