// Catch-up subscriptions.
import { Reader, category, check, events, feature, fresh, ids, kurrent, same } from './feature.mjs';

const { END, eventTypeFilter, streamNameFilter } = kurrent;

feature('catch-up-to-live-stream', async ({ client }) => {
  const [stream, added] = [fresh(), events(5)];
  await client.appendToStream(stream, added.slice(0, 3));
  const subscription = new Reader(client.subscribeToStream(stream));
  same(ids(await subscription.take(3)), ids(added.slice(0, 3)));
  await client.appendToStream(stream, added.slice(3));
  same(ids(await subscription.take(2)), ids(added.slice(3)));
  same(subscription.notices[0].name, 'confirmation', 'the first notice');
  await subscription.stop();
});

feature('catch-up-to-live-all', async ({ client }) => {
  const added = events(4);
  const { position } = await client.appendToStream(fresh(), events(1));
  await client.appendToStream(fresh(), added.slice(0, 2));
  const subscription = new Reader(client.subscribeToAll({ fromPosition: position }));
  same(ids(await subscription.take(2)), ids(added.slice(0, 2)));
  await client.appendToStream(fresh(), added.slice(2));
  same(ids(await subscription.take(2)), ids(added.slice(2)));
  await subscription.stop();
});

feature('subscribe-after-revision', async ({ client }) => {
  const [stream, added] = [fresh(), events(4)];
  await client.appendToStream(stream, added);
  const subscription = new Reader(client.subscribeToStream(stream, { fromRevision: 1n }));
  same(ids(await subscription.take(2)), ids(added.slice(2)));
  await subscription.stop();
});

feature('subscribe-after-position', async ({ client }) => {
  const added = events(3);
  const { position } = await client.appendToStream(fresh(), added.slice(0, 1));
  await client.appendToStream(fresh(), added.slice(1));
  const subscription = new Reader(client.subscribeToAll({ fromPosition: position }));
  same(ids(await subscription.take(2)), ids(added.slice(1)));
  await subscription.stop();
});

/** A subscription from the end, once it has been confirmed. */
async function fromEnd(subscription) {
  const reader = new Reader(subscription);
  await new Promise((resolve, reject) => {
    subscription.once('confirmation', resolve).once('error', reject);
    // It flows only while someone reads.
    reader.first = reader.iterator.next();
    reader.first.catch(reject);
  });
  const iterator = reader.iterator;
  reader.iterator = {
    next: () => {
      const next = reader.first ?? iterator.next();
      reader.first = undefined;
      return next;
    },
  };
  return reader;
}

feature('subscribe-from-end', async ({ client }) => {
  const [stream, added] = [fresh(), events(3)];
  await client.appendToStream(stream, added.slice(0, 1));
  const ofStream = await fromEnd(client.subscribeToStream(stream, { fromRevision: END }));
  const ofAll = await fromEnd(client.subscribeToAll({ fromPosition: END }));
  await client.appendToStream(stream, added.slice(1));
  same(ids(await ofStream.take(2)), ids(added.slice(1)));
  same(ids(await ofAll.take(2)), ids(added.slice(1)));
  await ofStream.stop();
  await ofAll.stop();
});

feature('subscribe-missing-stream', async ({ client }) => {
  const [stream, added] = [fresh(), events(2)];
  const subscription = await fromEnd(client.subscribeToStream(stream));
  await client.appendToStream(stream, added);
  same(ids(await subscription.take(2)), ids(added));
  await subscription.stop();
});

feature('caught-up', async ({ client }) => {
  const stream = fresh();
  const { position } = await client.appendToStream(stream, events(3));
  const ofStream = new Reader(client.subscribeToStream(stream));
  const { date, revision } = await ofStream.notice('caughtUp');
  same(revision, 2n, 'the revision');
  check(Math.abs(Date.now() - date.getTime()) < 60_000, `caught up at ${date}`);
  await ofStream.stop();
  const ofAll = new Reader(client.subscribeToAll({ fromPosition: position }));
  const info = await ofAll.notice('caughtUp');
  check(info.position?.commit >= position.commit, 'the notice has a position to resume from');
  await ofAll.stop();
});

feature('filter-prefix', async ({ client }) => {
  const type = category();
  const added = events(3, `${type}-wanted`);
  const { position } = await client.appendToStream(fresh(), events(1));
  await client.appendToStream(fresh(), [...events(2), ...added.slice(0, 2)]);
  const filter = eventTypeFilter({ prefixes: [`${type}-`] });
  const subscription = new Reader(client.subscribeToAll({ fromPosition: position, filter }));
  same(ids(await subscription.take(2)), ids(added.slice(0, 2)));
  await client.appendToStream(fresh(), [...events(2), ...added.slice(2)]);
  same(ids(await subscription.take(1)), ids(added.slice(2)));
  await subscription.stop();
});

feature('filter-regex', async ({ client }) => {
  const [mark, added] = [category(), events(3)];
  const { position } = await client.appendToStream(fresh(), events(1));
  await client.appendToStream(`${mark}-12`, added.slice(0, 1));
  await client.appendToStream(`${mark}-x`, events(1));
  const filter = streamNameFilter({ regex: `^${mark}-[0-9]+$` });
  const subscription = new Reader(client.subscribeToAll({ fromPosition: position, filter }));
  same(ids(await subscription.take(1)), ids(added.slice(0, 1)));
  await client.appendToStream(`${mark}-3`, added.slice(1));
  same(ids(await subscription.take(2)), ids(added.slice(1)));
  await subscription.stop();
});

feature('filter-checkpoint', async ({ client }) => {
  const { position: start } = await client.appendToStream(fresh(), events(1));
  const { position: end } = await client.appendToStream(fresh(), events(200, 'unwanted'));
  const positions = [];
  const filter = eventTypeFilter({
    prefixes: [category()],
    maxSearchWindow: 10,
    checkpointInterval: 2,
    checkpointReached: (_, position) => void positions.push(position),
  });
  const subscription = new Reader(client.subscribeToAll({ fromPosition: start, filter }));
  await subscription.notice('caughtUp');
  await subscription.stop();
  check(positions.length >= 10, `200 events at one in 20 gave ${positions.length} checkpoints`);
  const commits = positions.map(position => position.commit);
  same(commits, commits.toSorted((a, b) => (a < b ? -1 : a > b ? 1 : 0)), 'the checkpoints');
  check(start.commit < commits[0] && commits.at(-1) >= end.commit, 'the last is the log’s end');
  // Whoever resumes from it misses nothing.
  const added = events(1);
  await client.appendToStream(fresh(), added);
  const resumed = new Reader(client.subscribeToAll({ fromPosition: positions.at(-1) }));
  same(ids(await resumed.take(1)), ids(added));
  await resumed.stop();
});
