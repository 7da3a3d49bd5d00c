// Place an order: its row and its message commit together, or not at all.
//
// Two ways to enqueue, both plain SQL. The function `core_outbox.enqueue` says whether the message
// is new and returns the first one's id when it is not; the plain INSERT suits tools that only
// know tables. Neither sends anything: a relay delivers what is committed.

import { randomUUID } from 'node:crypto';
import { pathToFileURL } from 'node:url';
import pg from 'pg';

const INTEGRATION = 'webhook:fulfilment';
const EVENT_TYPE = 'order.placed.v1';

/** Creates the application's own table. */
export async function createOrders(client) {
  await client.query(`
    CREATE TABLE IF NOT EXISTS orders (
      id          uuid PRIMARY KEY,
      customer    text NOT NULL,
      total_cents bigint NOT NULL
    )`);
}

/** Runs `work` in a transaction: committed when it returns, rolled back when it throws. */
export async function inTransaction(client, work) {
  await client.query('BEGIN');
  try {
    const result = await work();
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

/**
 * Places an order inside the caller's transaction; a retry with the same id changes nothing.
 * Returns the message's id and whether it is new.
 */
export async function placeOrder(client, order) {
  await insertOrder(client, order);
  const { rows } = await client.query(
    `SELECT id, is_new FROM core_outbox.enqueue(
       integration => $1, event_type => $2, payload => $3, stream => $4, event_id => $5)`,
    [INTEGRATION, EVENT_TYPE, payload(order), stream(order), eventId(order)],
  );
  return { id: rows[0].id, isNew: rows[0].is_new };
}

/** The same with nothing but a table: the database makes the delivery. */
export async function placeOrderByInsert(client, order) {
  await insertOrder(client, order);
  await client.query(
    `INSERT INTO core_outbox.integration_outbox
       (integration_type, event_type, payload, source_stream_id, source_event_id)
     VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT DO NOTHING`,
    [INTEGRATION, EVENT_TYPE, payload(order), stream(order), eventId(order)],
  );
}

/** Writes the order's row, unless it is there. */
async function insertOrder(client, order) {
  await client.query(
    'INSERT INTO orders (id, customer, total_cents) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING',
    [order.id, order.customer, order.totalCents],
  );
}

const payload = (order) =>
  JSON.stringify({ orderId: order.id, customer: order.customer, totalCents: order.totalCents });

export const stream = (order) => `order-${order.id}`;

/** Follows from the order, so that a retry is recognised as the same event. */
const eventId = (order) => `order-placed-${order.id}`;

async function main([customer, totalCents]) {
  if (!customer || !Number.isSafeInteger(Number(totalCents))) {
    console.error('usage: node place-order.mjs CUSTOMER TOTAL_CENTS');
    process.exitCode = 2;
    return;
  }
  const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  try {
    await createOrders(client);
    const order = { id: randomUUID(), customer, totalCents: Number(totalCents) };
    const message = await inTransaction(client, () => placeOrder(client, order));
    console.log(`order ${order.id} placed, message ${message.id} enqueued`);
  } finally {
    await client.end();
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  await main(process.argv.slice(2));
}
