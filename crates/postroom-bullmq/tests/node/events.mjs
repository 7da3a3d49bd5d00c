// Listens to a queue's events from its beginning, and prints each as a line.
import { createRequire } from 'node:module';

const [modules, text] = process.argv.slice(2);
const { QueueEvents } = createRequire(`${modules}/`)('bullmq');
const { port, queue } = JSON.parse(text);
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const events = new QueueEvents(queue, { connection, lastEventId: '0' });
for (const name of ['added', 'waiting', 'active', 'completed', 'failed', 'removed', 'duplicated']) {
  events.on(name, said => console.log(name, said.jobId, said.failedReason ?? said.name ?? ''));
}
await events.waitUntilReady();
console.log('ready');
