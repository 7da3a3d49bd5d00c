// What the example promises, on the real database that DATABASE_URL names (migrated).

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, beforeEach, test } from 'node:test';
import pg from 'pg';
import {
  createOrders,
  inTransaction,
  placeOrder,
  placeOrderByInsert,
  stream,
} from './place-order.mjs';

const connect = async () => {
  const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  return client;
};

let client;
let observer; // another connection, which sees only what is committed
let order;

before(async () => {
  client = await connect();
  observer = await connect();
  await createOrders(client);
});
after(() => Promise.all([client.end(), observer.end()]));
beforeEach(() => {
  order = { id: randomUUID(), customer: 'ada', totalCents: 4200 };
});

async function committed() {
  const orders = await observer.query('SELECT id FROM orders WHERE id = $1', [order.id]);
  const messages = await observer.query(
    `SELECT id, integration_type, event_type, status, payload
     FROM core_outbox.messages WHERE source_stream_id = $1`,
    [stream(order)],
  );
  const deliveries = await observer.query(
    `SELECT fresh.message_id
     FROM (SELECT unnest(refs) AS message_id FROM core_outbox.parcel) AS fresh
     JOIN core_outbox.integration_outbox m ON m.id = fresh.message_id
     WHERE m.source_stream_id = $1`,
    [stream(order)],
  );
  return { orders: orders.rows, messages: messages.rows, deliveries: deliveries.rows };
}

test('a commit keeps the order and its message', async () => {
  const { id, isNew } = await inTransaction(client, () => placeOrder(client, order));
  assert.equal(isNew, true);
  assert.deepEqual(await committed(), {
    orders: [{ id: order.id }],
    messages: [
      {
        id,
        integration_type: 'webhook:fulfilment',
        event_type: 'order.placed.v1',
        status: 'PENDING',
        payload: { orderId: order.id, customer: 'ada', totalCents: 4200 },
      },
    ],
    deliveries: [{ message_id: id }],
  });
});

for (const place of [placeOrder, placeOrderByInsert]) {
  test(`a rollback leaves neither (${place.name})`, async () => {
    const declined = inTransaction(client, async () => {
      await place(client, order);
      throw new Error('card declined');
    });
    await assert.rejects(declined, /card declined/);
    assert.deepEqual(await committed(), { orders: [], messages: [], deliveries: [] });
  });
}

test('a retry returns the first message unchanged', async () => {
  const first = await inTransaction(client, () => placeOrder(client, order));
  const changed = { ...order, totalCents: 9999 };
  const second = await inTransaction(client, () => placeOrder(client, changed));
  assert.deepEqual(second, { id: first.id, isNew: false });
  const { messages, deliveries } = await committed();
  assert.equal(messages.length, 1);
  assert.equal(messages[0].payload.totalCents, 4200);
  assert.equal(deliveries.length, 1);
});

test('a plain INSERT is delivered too', async () => {
  await inTransaction(client, () => placeOrderByInsert(client, order));
  await inTransaction(client, () => placeOrderByInsert(client, order));
  const { messages, deliveries } = await committed();
  assert.equal(messages.length, 1);
  assert.equal(messages[0].status, 'PENDING');
  assert.equal(deliveries.length, 1);
});
