// What the example promises, with the real program on real databases. DATABASE_URL names a server where the
// tests may make databases of their own, POSTROOM the program unless it is on the path.

import 'reflect-metadata';
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import type { INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import pg from 'pg';
import { DataSource, type Repository } from 'typeorm';
import { AppModule } from '../src/app.module.js';
import { IntegrationOutboxEntity, OutboxStatus } from '../src/integration-outbox.entity.js';
import { OrderEntity } from '../src/order.entity.js';
import { type NewOrder, OrdersService } from '../src/orders.service.js';
import { eventually, Postroom, Receiver } from './support.js';

const server = process.env.DATABASE_URL ?? '';

async function onServer(sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: server });
  await client.connect();
  await client.query(sql).finally(() => client.end());
}

/** An application on a database of its own, and a relay beside it. */
class Scene {
  private readonly name = `nestjs_${randomUUID().replaceAll('-', '')}`;
  readonly receiver = new Receiver();
  app!: INestApplicationContext;
  postroom!: Postroom;

  async begin(): Promise<void> {
    await onServer(`CREATE DATABASE ${this.name}`);
    await this.receiver.start();
    this.postroom = new Postroom(this.url, this.receiver);
  }

  get url(): string {
    const url = new URL(server);
    url.pathname = `/${this.name}`;
    return url.toString();
  }

  /** TypeORM makes tables, and no schemas. */
  async makeSchema(): Promise<void> {
    const client = new pg.Client({ connectionString: this.url });
    await client.connect();
    await client.query('CREATE SCHEMA core_outbox').finally(() => client.end());
  }

  /** Starts the application, which synchronizes its tables. */
  async startApp(): Promise<void> {
    process.env.DATABASE_URL = this.url;
    this.app = await NestFactory.createApplicationContext(AppModule, { logger: ['error'], abortOnError: false });
  }

  get outbox(): Repository<IntegrationOutboxEntity> {
    return this.app.get(DataSource).getRepository(IntegrationOutboxEntity);
  }

  place(order: NewOrder): Promise<IntegrationOutboxEntity> {
    return this.app.get(OrdersService).place(order);
  }

  /** The message, as the application reads it, once it has this status. */
  becomes(id: string, status: OutboxStatus): Promise<IntegrationOutboxEntity> {
    return eventually(`${id} to be ${status}`, async () => {
      const message = await this.outbox.findOneByOrFail({ id });
      return message.status === status ? message : undefined;
    });
  }

  /** Everything in the database that Postroom has made. */
  async postroomsOwn(): Promise<string[]> {
    const rows = await this.app.get(DataSource).query(`
      SELECT 'trigger ' || pg_get_triggerdef(oid) AS it FROM pg_trigger WHERE tgname LIKE 'postroom%'
      UNION ALL
      SELECT 'relation ' || oid::regclass || ' ' || relkind::text FROM pg_class
      WHERE relnamespace::regnamespace::text LIKE 'postroom%'
      UNION ALL
      SELECT 'function ' || oid::regprocedure FROM pg_proc
      WHERE pronamespace::regnamespace::text LIKE 'postroom%'
      ORDER BY 1`);
    return rows.map((row: { it: string }) => row.it);
  }

  async end(): Promise<void> {
    await this.postroom.stop();
    await this.app?.close();
    this.receiver.stop();
    await onServer(`DROP DATABASE ${this.name} WITH (FORCE)`);
  }
}

const newOrder = (): NewOrder => ({ id: randomUUID(), customer: 'ada', totalCents: 4200 });

const scene = new Scene();

before(async () => {
  await scene.begin();
  await scene.makeSchema();
  await scene.startApp();
  await scene.postroom.run('migrate');
  scene.postroom.start();
});
after(() => scene.end());

test('a committed order is delivered, and its row reads SENT', async () => {
  const order = newOrder();
  const { id } = await scene.place(order);
  const message = await scene.becomes(id, OutboxStatus.SENT);
  assert.ok(message.sentAt instanceof Date);
  assert.equal(message.attempts, 0);
  const [received] = scene.receiver.of(order.id);
  assert.deepEqual(received.body, { orderId: order.id, customer: 'ada', totalCents: 4200 });
  assert.equal(received.headers['idempotency-key'], `order-placed-${order.id}`);
  assert.equal(received.headers['postroom-event-type'], 'order.placed.v1');
});

test('a transaction that fails leaves neither order nor message', async () => {
  const order = newOrder();
  await scene.place(order);
  await assert.rejects(scene.place({ ...order, customer: 'bob' }), /duplicate key/);
  const orders = await scene.app.get(DataSource).getRepository(OrderEntity).findBy({ id: order.id });
  assert.deepEqual(orders.map(one => one.customer), ['ada']);
  assert.equal(await scene.outbox.countBy({ sourceStreamId: `order-${order.id}` }), 1);
});

test('a failure is counted in the row, and tried again', async () => {
  const order = newOrder();
  scene.receiver.next.push(503);
  const { id } = await scene.place(order);
  const message = await scene.becomes(id, OutboxStatus.SENT);
  assert.equal(message.attempts, 1);
  assert.match(message.lastError ?? '', /503/);
  assert.equal(scene.receiver.of(order.id).length, 2);
});

test('a message that is refused reads DEAD, and one update through TypeORM sends it again', async () => {
  const order = newOrder();
  scene.receiver.next.push(422);
  const { id } = await scene.place(order);
  const dead = await scene.becomes(id, OutboxStatus.DEAD);
  assert.match(dead.lastError ?? '', /422/);
  await scene.outbox.update({ id }, { status: OutboxStatus.PENDING, attempts: 0, dueAt: new Date() });
  await scene.becomes(id, OutboxStatus.SENT);
  assert.equal(scene.receiver.of(order.id).length, 2);
});

test('the times that Postroom writes are those of the application', async () => {
  const { id } = await scene.place(newOrder());
  const message = await scene.becomes(id, OutboxStatus.SENT);
  const { createdAt, updatedAt, sentAt } = message;
  for (const time of [createdAt, updatedAt, sentAt ?? new Date(0)]) {
    assert.ok(Math.abs(Date.now() - time.getTime()) < 60_000, `${time.toISOString()}`);
  }
});

test('synchronize changes nothing of Postroom, and deliveries go on', async () => {
  const made = await scene.postroomsOwn();
  assert.ok(made.filter(one => one.startsWith('trigger')).length >= 3, made.join('\n'));
  assert.ok(made.length > 10, made.join('\n'));
  await scene.app.close();
  await scene.startApp();
  assert.deepEqual(await scene.postroomsOwn(), made);
  assert.match(await scene.postroom.run('migrate'), /up to date|nothing/i);
  const { id } = await scene.place(newOrder());
  await scene.becomes(id, OutboxStatus.SENT);
});

test('an application that comes after Postroom finds its table', async () => {
  const other = new Scene();
  await other.begin();
  try {
    await other.postroom.run('migrate');
    await other.startApp();
    const made = await other.postroomsOwn();
    other.postroom.start();
    const { id } = await other.place(newOrder());
    await other.becomes(id, OutboxStatus.SENT);
    await other.app.close();
    await other.startApp();
    assert.deepEqual(await other.postroomsOwn(), made);
    await other.postroom.run('check');
  } finally {
    await other.end();
  }
});
