// A worker that reports to the outbox and not to BullMQ: it marks the message's row by itself, and its
// job completes whatever happens.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';

const [modules, text] = process.argv.slice(2);
const { port, queue, pg, url, way, up, maxAttempts, ...options } = JSON.parse(text);
const { Worker } = createRequire(`${modules}/`)('bullmq');
const { Pool } = createRequire(`${pg}/`)('pg');

const database = new Pool({ connectionString: url, max: 4 });
const table = 'core_outbox.integration_outbox';

// What an ORM's `update` sends: the columns that are named, and the time of the update.
async function update(id, columns) {
  const names = Object.keys(columns);
  const set = names.map((name, index) => `${name} = $${index + 2}`).join(', ');
  await database.query(
    `UPDATE ${table} SET ${set}, updated_at = CURRENT_TIMESTAMP WHERE id IN ($1)`,
    [id, ...Object.values(columns)],
  );
}

// What an ORM sends that saves whole rows: every column, as it was read or as it is set.
async function save(id, columns) {
  const { rows: [{ updated_at: _, ...row }] } = await database.query(
    `SELECT *, payload::text, headers::text FROM ${table} WHERE id = $1`, [id],
  );
  await update(id, { ...row, ...columns });
}

// What somebody writes by hand: as little as possible.
async function bare(id, { status, last_error }) {
  const set = last_error === undefined ? 'status = $2' : 'status = $2, last_error = $3';
  const values = last_error === undefined ? [id, status] : [id, status, last_error];
  await database.query(`UPDATE ${table} SET ${set} WHERE id = $1`, values);
}

const write = { update, save, bare }[way];
const outbox = {
  markSent: id => write(id, { status: 'SENT', sent_at: new Date() }),
  markFailed: (id, error, nextDueAt, attempts) =>
    write(id, { status: 'FAILED', last_error: error, due_at: nextDueAt, attempts }),
  deadLetter: (id, error) => write(id, { status: 'DEAD', last_error: error }),
};
const repo = {
  getAttempts: async id =>
    (await database.query(`SELECT attempts FROM ${table} WHERE id = $1`, [id])).rows[0].attempts,
};
const backoff = attempts =>
  new Date(Date.now() + Math.min(60_000 * 2 ** (attempts - 1), 15 * 60_000));

const worker = new Worker(
  queue,
  async job => {
    const { outboxId } = job.data;
    try {
      if (!existsSync(up)) throw new Error('the broker is down');
      console.log('delivered', outboxId);
      await outbox.markSent(outboxId);
    } catch (err) {
      console.log('failed', outboxId);
      const attempts = (await repo.getAttempts(outboxId)) + 1;
      const nextDueAt = backoff(attempts);
      if (attempts >= maxAttempts) await outbox.deadLetter(outboxId, String(err));
      else await outbox.markFailed(outboxId, String(err), nextDueAt, attempts);
    }
  },
  { connection: { host: '127.0.0.1', port, maxRetriesPerRequest: null }, ...options },
);
worker.on('error', () => {});
await worker.waitUntilReady();
console.log('ready');
