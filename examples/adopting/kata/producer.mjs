// `placeOrder` as its owner wrote it, on PostgreSQL: the order and its event in one transaction. It knows
// nothing of Postroom.
//
// usage: node producer.mjs COUNT      (DATABASE_URL names the database)

import { randomUUID } from 'node:crypto';
import pg from 'pg';

const count = Number(process.argv[2]);
const perTransaction = 50;

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
await client.query('CREATE TABLE IF NOT EXISTS orders (order_id text PRIMARY KEY, user_id text, total int)');

async function placeOrders(first, size) {
  const now = Date.now();
  const events = Array.from({ length: size }, (_, i) => {
    const orderId = `ord_${first + i}`;
    return {
      event_id: randomUUID(),
      aggregate_id: orderId,
      payload: { n: first + i, orderId, userId: 'usr_1', total: 100 },
      now,
    };
  });
  const rows = JSON.stringify(events);
  await client.query(
    `INSERT INTO orders SELECT e.aggregate_id, e.payload->>'userId', 100
     FROM jsonb_to_recordset($1) AS e (aggregate_id text, payload jsonb)`,
    [rows],
  );
  await client.query(
    `INSERT INTO outbox (event_id, type, aggregate_id, payload, status, attempts, next_attempt_at, created_at)
     SELECT e.event_id, 'order.created', e.aggregate_id, e.payload, 'PENDING', 0, e.now, e.now
     FROM jsonb_to_recordset($1) AS e (event_id uuid, aggregate_id text, payload jsonb, now bigint)`,
    [rows],
  );
  return size;
}

let committed = 0;
for (let first = 0; first < count; first += perTransaction) {
  const size = Math.min(perTransaction, count - first);
  // Some transactions fail on their way: neither the orders nor their events stay.
  if ((first / perTransaction) % 10 === 3) {
    await client.query('BEGIN');
    await placeOrders(1_000_000 + first, size);
    await client.query('ROLLBACK');
  }
  await client.query('BEGIN');
  committed += await placeOrders(first, size);
  await client.query('COMMIT');
}
await client.end();
console.log(`committed ${committed}`);
