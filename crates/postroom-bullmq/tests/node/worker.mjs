// A BullMQ worker as anybody would write one. It prints a line for whatever happens to a job.
import { createRequire } from 'node:module';

const [modules, text] = process.argv.slice(2);
const { Worker, UnrecoverableError } = createRequire(`${modules}/`)('bullmq');
const { port, queue, ...options } = JSON.parse(text);
const say = (...words) => process.stdout.write(`${words.join(' ')}\n`);

async function run(job) {
  say('started', job.id, job.name, JSON.stringify(job.data));
  switch (job.name) {
    case 'fail':
      throw new Error(job.data.reason);
    case 'never':
      throw new UnrecoverableError(job.data.reason);
    case 'hang':
      return new Promise(() => {});
    case 'slow':
      return new Promise(done => setTimeout(done, 20));
    default:
      return job.id;
  }
}

const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const worker = new Worker(queue, run, { connection, ...options });
worker.on('completed', job => say('completed', job.id));
worker.on('failed', (job, error) => say('failed', job?.id, error.message));
worker.on('error', error => console.error(error.message));
await worker.waitUntilReady();
say('ready');
