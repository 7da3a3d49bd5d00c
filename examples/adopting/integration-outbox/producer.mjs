// A projector that knows nothing of Postroom: it maps domain events to rows of the outbox, as it did
// before. A second insert of the same event is refused by the unique index, and passed over.
//
// usage: node producer.mjs COUNT      (DATABASE_URL names the database)

import pg from 'pg';

const count = Number(process.argv[2]);
const perTransaction = 50;

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
await client.query('CREATE TABLE IF NOT EXISTS projected (stream text, event text, PRIMARY KEY (stream, event))');

async function project(first, size) {
  const numbers = Array.from({ length: size }, (_, n) => first + n);
  const rows = numbers.map(n => ({
    stream: `payment-${n % 500}`,
    event: `evt-${n}`,
    payload: { n, paymentId: `pay_${n}` },
    headers: { idempotencyKey: `evt-${n}` },
  }));
  await client.query(
    'INSERT INTO projected SELECT r.stream, r.event FROM jsonb_to_recordset($1) AS r (stream text, event text)',
    [JSON.stringify(rows)],
  );
  const inserted = await client.query(
    `INSERT INTO core_outbox.integration_outbox
       (source_stream_id, source_event_id, integration_type, event_type, payload, headers, tenant_id, correlation_id)
     SELECT r.stream, r.event, 'webhook:partnerX', 'payment.completed.v1', r.payload, r.headers, 'acme', 'corr-' || r.event
     FROM jsonb_to_recordset($1) AS r (stream text, event text, payload jsonb, headers jsonb)
     ON CONFLICT (source_stream_id, source_event_id) DO NOTHING`,
    [JSON.stringify(rows)],
  );
  return inserted.rowCount;
}

let committed = 0;
for (let first = 0; first < count; first += perTransaction) {
  const size = Math.min(perTransaction, count - first);
  // Some transactions fail on their way: neither their rows nor their messages stay.
  if ((first / perTransaction) % 10 === 3) {
    await client.query('BEGIN');
    await project(1_000_000 + first, size);
    await client.query('ROLLBACK');
  }
  await client.query('BEGIN');
  committed += await project(first, size);
  await client.query('COMMIT');
}
await client.end();
console.log(`committed ${committed}`);
