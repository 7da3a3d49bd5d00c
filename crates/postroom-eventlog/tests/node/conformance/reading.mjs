// Reading streams and the whole log. This client does it through its native module.
import {
  all, category, check, events, fails, feature, fresh, ids, kurrent, same,
} from './feature.mjs';

const { BACKWARDS, END, StreamNotFoundError } = kurrent;
const { eventTypeFilter, excludeSystemEvents, streamNameFilter } = kurrent;

const backwards = { direction: BACKWARDS, fromRevision: END };

feature('read-stream-forwards', async ({ client }) => {
  const [stream, added] = [fresh(), events(5)];
  await client.appendToStream(stream, added);
  const read = await all(client.readStream(stream));
  same(ids(read), ids(added));
  same(read.map(each => each.event.revision), [0n, 1n, 2n, 3n, 4n], 'the revisions');
  same(new Set(read.map(each => each.event.streamId)), new Set([stream]), 'the stream');
});

feature('read-stream-backwards', async ({ client }) => {
  const [stream, added] = [fresh(), events(5)];
  await client.appendToStream(stream, added);
  same(ids(await all(client.readStream(stream, backwards))), ids(added.toReversed()));
});

feature('read-stream-from-revision', async ({ client }) => {
  const [stream, added] = [fresh(), events(5)];
  await client.appendToStream(stream, added);
  const read = options => all(client.readStream(stream, options));
  same(ids(await read({ fromRevision: 2n })), ids(added.slice(2)));
  const back = await read({ direction: BACKWARDS, fromRevision: 2n });
  same(ids(back), ids(added.slice(0, 3).toReversed()));
  same(ids(await read({ fromRevision: 5n })), []);
});

feature('read-stream-limit', async ({ client }) => {
  const [stream, added] = [fresh(), events(5)];
  await client.appendToStream(stream, added);
  const read = options => all(client.readStream(stream, options));
  same(ids(await read({ maxCount: 2 })), ids(added.slice(0, 2)));
  same(ids(await read({ maxCount: 2, fromRevision: 3n })), ids(added.slice(3)));
  same(ids(await read({ maxCount: 1, ...backwards })), ids(added.slice(4)));
});

feature('read-stream-long', async ({ client }) => {
  const [stream, added] = [fresh(), events(3_000)];
  await client.appendToStream(stream, added);
  same(ids(await all(client.readStream(stream))), ids(added));
});

feature('read-stream-missing', async ({ client }) => {
  const stream = fresh();
  const error = await fails(StreamNotFoundError, all(client.readStream(stream)));
  same(error.streamName, stream);
  await fails(StreamNotFoundError, all(client.readStream(stream, backwards)));
});

feature('unusual-names', async ({ client }) => {
  for (const name of ['with space', 'ünïcödé ✓', 'a/b?c=d&e#f', 'no.category', '--']) {
    const [stream, added] = [`${name}${fresh()}`, events(1, `${name} happened`)];
    await client.appendToStream(stream, added);
    const [{ event }] = await all(client.readStream(stream));
    same([event.streamId, event.type], [stream, `${name} happened`]);
    await fails(StreamNotFoundError, all(client.readStream(`${name}${fresh()}`)));
  }
});

feature('read-all-forwards', async ({ client }) => {
  const added = events(3);
  const { position } = await client.appendToStream(fresh(), added.slice(0, 1));
  await client.appendToStream(fresh(), added.slice(1));
  const read = await all(client.readAll({ fromPosition: position, maxCount: 3 }));
  same(ids(read), ids(added));
  const positions = read.map(each => each.event.position.commit);
  check(positions[0] < positions[1] && positions[1] < positions[2], `positions ${positions}`);
});

feature('read-all-backwards', async ({ client }) => {
  const added = events(3);
  await client.appendToStream(fresh(), added.slice(0, 1));
  const { position } = await client.appendToStream(fresh(), added.slice(1));
  const read = options => all(client.readAll({ direction: BACKWARDS, ...options }));
  same(ids(await read({ fromPosition: END, maxCount: 3 })), ids(added.toReversed()));
  const before = await read({ fromPosition: position, maxCount: 2 });
  same(ids(before), ids(added.slice(0, 2).toReversed()), 'what is before a position');
});

/** Events of two types in streams of two categories, with what marks them. */
async function mixed(client) {
  const mark = category();
  const [a, b, other] = [events(2, `${mark}-a`), events(2, `${mark}-b`), events(2, 'other')];
  await client.appendToStream(fresh(`${mark}x`), [a[0], b[0], other[0]]);
  await client.appendToStream(fresh(`${mark}y`), [a[1], b[1], other[1]]);
  return { mark, a, b, other };
}

feature('read-all-filter-prefix', async ({ client }) => {
  const { mark, a, b } = await mixed(client);
  const read = (prefixes, options) =>
    all(client.readAll({ filter: eventTypeFilter({ prefixes }), ...options }));
  same(ids(await read([`${mark}-a`])), ids(a));
  same(ids(await read([`${mark}-a`, `${mark}-b`], { maxCount: 3 })), ids([a[0], b[0], a[1]]));
  const last = { direction: BACKWARDS, fromPosition: END, maxCount: 1 };
  same(ids(await read([`${mark}-`], last)), ids(b.slice(1)));
});

feature('read-all-filter-regex', async ({ client }) => {
  const { mark, a } = await mixed(client);
  const filter = eventTypeFilter({ regex: `^${mark}-[ac]$` });
  same(ids(await all(client.readAll({ filter }))), ids(a));
});

feature('read-all-filter-stream', async ({ client }) => {
  const { mark, a, b, other } = await mixed(client);
  const read = filter => all(client.readAll({ filter: streamNameFilter(filter) }));
  same(ids(await read({ prefixes: [`${mark}y`] })), ids([a[1], b[1], other[1]]));
  same(ids(await read({ regex: `^${mark}[xz]-` })), ids([a[0], b[0], other[0]]));
});

feature('exclude-system-events', async ({ client }) => {
  const stream = fresh();
  const { position } = await client.appendToStream(stream, events(1));
  await client.setStreamMetadata(stream, { maxCount: 10 });
  const types = async options =>
    (await all(client.readAll({ fromPosition: position, ...options }))).map(e => e.event.type);
  check((await types({})).includes('$metadata'), 'without a filter they are there');
  const usual = await types({ filter: excludeSystemEvents() });
  check(usual.length > 0 && !usual.some(type => type.startsWith('$')), `read ${usual}`);
});
