// What every feature uses: how it is declared, where it runs, and how it waits.
import { createRequire } from 'node:module';
import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual, inspect } from 'node:util';

export const kurrent = createRequire(`${process.argv[2]}/`)('@kurrent/kurrentdb-client');
const { KurrentDBClient, jsonEvent } = kurrent;

/** How long one wait may take. */
export const LIMIT_MS = 20_000;
const PAUSE_MS = 20;

export const FEATURES = new Map();

/** Declares what proves a feature: a function that gets the servers, and fails by an exception. */
export function feature(name, prove) {
  if (FEATURES.has(name)) throw new Error(`${name} is declared twice`);
  FEATURES.set(name, prove);
}

/** The servers that the harness has started for this program. */
export class Servers {
  constructor(options, ask) {
    Object.assign(this, options);
    /** Stops the server that is there to be restarted. */
    this.stop = () => ask('stop');
    /** Starts it again, with what it had. */
    this.start = () => ask('start');
    this.client = this.connect(`kurrentdb://${this.plain}?tls=false`);
  }

  connect(connectionString) {
    return KurrentDBClient.connectionString(connectionString);
  }

  secureClient({ user = this.user, password = this.password, authority = this.authority } = {}) {
    const who = user ? `${user}:${password}@` : '';
    const trust = authority ? `&tlsCAFile=${authority}` : '';
    return this.connect(`kurrentdb://${who}${this.secure}?tls=true${trust}`);
  }
}

/** A name of a stream that nobody else uses. */
export const fresh = (category = 'conformance') =>
  `${category}-${randomUUID().replaceAll('-', '')}`;

/** A category that nobody else uses. */
export const category = () => fresh('c').replace('-', '');

/** New events, numbered in their data. */
export const events = (count, type = 'happened') =>
  Array.from({ length: count }, (_, n) => jsonEvent({ type, data: { n } }));

/** The ids of events, new or recorded. */
export const ids = some => some.map(each => (each.event ?? each.link ?? each).id);

/** All that a read gives. */
export async function all(read) {
  const found = [];
  for await (const each of read) found.push(each);
  return found;
}

export function same(actual, expected, what = 'the result') {
  const show = value => inspect(value, { depth: 6, breakLength: Infinity });
  if (!isDeepStrictEqual(actual, expected))
    throw new Error(`${what} is ${show(actual)}, not ${show(expected)}`);
}

export function check(condition, what) {
  if (!condition) throw new Error(what);
}

/** The error of a promise that has to fail with one of this kind. */
export async function fails(kind, promise) {
  let result;
  try {
    result = await promise;
  } catch (error) {
    if (error instanceof kind) return error;
    throw new Error(`${kind.name} expected, not ${error?.constructor?.name}: ${error?.message}`);
  }
  throw new Error(`${kind.name} expected, but it gave ${inspect(result)}`);
}

/** Fails when a promise takes longer than any wait may. */
export function inTime(what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited ${LIMIT_MS} ms in vain: ${what}`)), LIMIT_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Waits until a condition gives something true, and returns it. */
export async function eventually(what, condition) {
  const end = Date.now() + LIMIT_MS;
  for (;;) {
    const value = await condition();
    if (value) return value;
    check(Date.now() < end, `waited ${LIMIT_MS} ms in vain: ${what}`);
    await new Promise(resolve => setTimeout(resolve, PAUSE_MS));
  }
}

/** Reads a subscription one event at a time, and keeps the notices beside them. */
export class Reader {
  constructor(subscription) {
    this.subscription = subscription;
    this.notices = [];
    for (const name of ['confirmation', 'caughtUp', 'fellBehind'])
      subscription.on(name, info => this.notices.push({ name, info }));
    this.iterator = subscription[Symbol.asyncIterator]();
  }

  async next() {
    const { value, done } = await inTime('a next event', this.iterator.next());
    check(!done, 'the subscription has ended');
    return value;
  }

  async take(count) {
    const taken = [];
    while (taken.length < count) taken.push(await this.next());
    return taken;
  }

  /** What the notice of this name said. Events are read on, because notices stand among them. */
  async notice(name) {
    const reading = (async () => {
      while (!(await this.iterator.next()).done);
    })();
    reading.catch(() => {});
    const find = () => this.notices.find(notice => notice.name === name);
    return (await eventually(`the notice ${name}`, find)).info;
  }

  async stop() {
    this.subscription.on('error', () => {});
    await this.subscription.unsubscribe();
  }
}
