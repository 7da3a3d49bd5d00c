// Proves what the official Node client can do with a server, one feature after the other.
//
//     node main.mjs MODULES OPTIONS [FEATURE ...]
//
// MODULES is the folder of the client's package, OPTIONS is JSON: the servers' addresses. Prints one
// line of JSON for each feature, and asks by a line such as {"ask": "stop"} for what only the harness
// can do; any line that it reads is the answer.
import { createInterface } from 'node:readline';

import './appending.mjs';
import './connection.mjs';
import './lifetime.mjs';
import './links.mjs';
import './persistent.mjs';
import './reading.mjs';
import './sharing.mjs';
import './subscriptions.mjs';
import { FEATURES, Servers } from './feature.mjs';

// No single wait of a feature takes longer than `LIMIT_MS`; this is for all of them.
const FEATURE_LIMIT_MS = 60_000;

const tell = line => new Promise(done => process.stdout.write(`${JSON.stringify(line)}\n`, done));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ask(what) {
  await tell({ ask: what });
  if ((await lines.next()).done) throw new Error('the harness is gone');
}

// What the client throws from its own event handlers belongs to the feature that runs at the time.
let stray;
process.on('uncaughtException', error => (stray ??= error));
process.on('unhandledRejection', error => (stray ??= error));

function limit() {
  let timer;
  const late = new Promise((_, reject) => {
    const error = new Error(`no end in ${FEATURE_LIMIT_MS} ms`);
    timer = setTimeout(() => reject(error), FEATURE_LIMIT_MS);
  });
  return [late, () => clearTimeout(timer)];
}

const describe = error => {
  const place = /conformance\/(?!feature)(\w+\.mjs:\d+)/.exec(error?.stack ?? '')?.[1] ?? '';
  return `${place}: ${error?.constructor?.name}: ${error?.message ?? error}`;
};

const [, , , text, ...wanted] = process.argv;
const servers = new Servers(JSON.parse(text), ask);
for (const name of wanted.length ? wanted : FEATURES.keys()) {
  stray = undefined;
  const [late, clear] = limit();
  try {
    await Promise.race([FEATURES.get(name)(servers), late]);
    if (stray) throw stray;
    await tell({ feature: name, ok: true });
  } catch (error) {
    const also = stray && stray !== error ? `; beside it ${describe(stray)}` : '';
    await tell({ feature: name, ok: false, error: `${describe(error)}${also}` });
  }
  clear();
}
await tell({ end: true });
process.exit(0);
