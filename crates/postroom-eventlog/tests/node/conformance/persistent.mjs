// Persistent subscriptions: what one consumer gets, and how groups are kept.
import {
  Reader, check, events, eventually, fails, feature, fresh, ids, kurrent, same,
} from './feature.mjs';

const { END, PARK, RETRY, SKIP, START } = kurrent;
const {
  PersistentSubscriptionDoesNotExistError: DoesNotExist,
  PersistentSubscriptionDroppedError: Dropped,
  PersistentSubscriptionExistsError: Exists,
  PersistentSubscriptionMaximumSubscribersReachedError: MaximumReached,
  persistentSubscriptionToStreamSettingsFromDefaults: settings,
} = kurrent;

const group = 'group';

/** A group on a new stream, from its start; returns the stream. */
async function grouped(client, added = [], changes = {}) {
  const stream = fresh();
  if (added.length) await client.appendToStream(stream, added);
  const all = settings({ startFrom: START, ...changes });
  await client.createPersistentSubscriptionToStream(stream, group, all);
  return stream;
}

const consume = (client, stream) =>
  new Reader(client.subscribeToPersistentSubscriptionToStream(stream, group));

const info = (client, stream) => client.getPersistentSubscriptionToStreamInfo(stream, group);

const parked = (client, stream, count) =>
  eventually(`${count} are parked`, async () =>
    (await info(client, stream)).stats.parkedMessageCount === BigInt(count));

const acknowledged = (client, stream) =>
  eventually('all are acknowledged', async () =>
    (await info(client, stream)).stats.outstandingMessagesCount === 0);

feature('persistent-create', async ({ client }) => {
  const stream = await grouped(client);
  const error = await fails(
    Exists, client.createPersistentSubscriptionToStream(stream, group, settings()),
  );
  same([error.streamName, error.groupName], [stream, group]);
  await client.createPersistentSubscriptionToStream(stream, 'another', settings());
});

feature('persistent-ack', async ({ client }) => {
  const added = events(4);
  const stream = await grouped(client, added.slice(0, 3), { messageTimeout: 1_000 });
  const first = consume(client, stream);
  const read = await first.take(3);
  same(ids(read), ids(added.slice(0, 3)));
  same(read.map(each => each.retryCount), [0, 0, 0], 'the retries');
  await first.subscription.ack(...read);
  await acknowledged(client, stream);
  await client.appendToStream(stream, added.slice(3));
  same(ids(await first.take(1)), ids(added.slice(3)), 'what comes after acknowledged events');
  await first.stop();
  // What a consumer leaves behind goes to the next one.
  const second = consume(client, stream);
  same(ids(await second.take(1)), ids(added.slice(3)), 'what the first consumer left');
  await second.stop();
});

feature('persistent-retry', async ({ client }) => {
  const added = events(1);
  const stream = await grouped(client, added);
  const consumer = consume(client, stream);
  await consumer.subscription.nack(RETRY, 'again', await consumer.next());
  const second = await consumer.next();
  same([second.event.id, second.retryCount], [added[0].id, 1]);
  await consumer.subscription.ack(second);
  await consumer.stop();
});

feature('persistent-skip', async ({ client }) => {
  const added = events(2);
  const stream = await grouped(client, added.slice(0, 1));
  const consumer = consume(client, stream);
  await consumer.subscription.nack(SKIP, 'unwanted', await consumer.next());
  await client.appendToStream(stream, added.slice(1));
  same(ids(await consumer.take(1)), ids(added.slice(1)));
  await consumer.stop();
  same((await info(client, stream)).stats.parkedMessageCount, 0n, 'the number of parked events');
});

feature('persistent-park-and-replay', async ({ client }) => {
  const [added, more] = [events(3), events(1)];
  const stream = await grouped(client, added);
  const consumer = consume(client, stream);
  const read = await consumer.take(3);
  await consumer.subscription.nack(PARK, 'because', read[0], read[2]);
  await consumer.subscription.ack(read[1]);
  await parked(client, stream, 2);
  await client.replayParkedMessagesToStream(stream, group);
  const again = await consumer.take(2);
  same(new Set(ids(again)), new Set([added[0].id, added[2].id]), 'what was replayed');
  await consumer.subscription.ack(...again);
  await parked(client, stream, 0);
  await client.replayParkedMessagesToStream(stream, group);
  await client.appendToStream(stream, more);
  same(ids(await consumer.take(1)), ids(more), 'what comes after a replay of nothing');
  await consumer.stop();
});

feature('persistent-replay-some', async ({ client }) => {
  const added = events(3);
  const stream = await grouped(client, added);
  const consumer = consume(client, stream);
  await consumer.subscription.nack(PARK, 'because', ...(await consumer.take(3)));
  await parked(client, stream, 3);
  await client.replayParkedMessagesToStream(stream, group, { stopAt: 2 });
  await consumer.subscription.ack(...(await consumer.take(2)));
  await parked(client, stream, 1);
  await consumer.stop();
});

feature('persistent-message-timeout', async ({ client }) => {
  const added = events(1);
  const stream = await grouped(client, added, { messageTimeout: 500 });
  const consumer = consume(client, stream);
  const [first, second] = await consumer.take(2);
  same(ids([first, second]), [added[0].id, added[0].id]);
  same([first.retryCount, second.retryCount], [0, 1], 'the retries');
  await consumer.subscription.ack(second);
  await consumer.stop();
});

feature('persistent-max-retries', async ({ client }) => {
  const stream = await grouped(client, events(1), { maxRetryCount: 1 });
  const consumer = consume(client, stream);
  for (let n = 0; n < 2; n++)
    await consumer.subscription.nack(RETRY, 'again', await consumer.next());
  await parked(client, stream, 1);
  await consumer.stop();
});

feature('persistent-start-from', async ({ client }) => {
  const [stream, added] = [fresh(), events(4)];
  await client.appendToStream(stream, added.slice(0, 3));
  for (const [name, startFrom] of [['from-revision', 1n], ['from-end', END]])
    await client.createPersistentSubscriptionToStream(stream, name, settings({ startFrom }));
  const read = name => new Reader(client.subscribeToPersistentSubscriptionToStream(stream, name));
  const [middle, end] = [read('from-revision'), read('from-end')];
  same(ids(await middle.take(2)), ids(added.slice(1, 3)));
  await client.appendToStream(stream, added.slice(3));
  same(ids(await end.take(1)), ids(added.slice(3)));
  await middle.stop();
  await end.stop();
});

feature('persistent-info', async ({ client }) => {
  const stream = await grouped(client, events(1), { maxRetryCount: 7 });
  const consumer = consume(client, stream);
  await consumer.next();
  const found = await info(client, stream);
  same([found.eventSource, found.groupName], [stream, group]);
  const { maxRetryCount, consumerStrategyName, messageTimeout, startFrom } = found.settings;
  same([maxRetryCount, consumerStrategyName], [7, 'RoundRobin']);
  same([messageTimeout, startFrom], [30_000, START]);
  same([found.connections.length, found.stats.outstandingMessagesCount], [1, 1]);
  same(found.connections[0].connectionName, client.connectionName);
  await consumer.stop();
});

feature('persistent-list', async ({ client }) => {
  const [stream, other] = [await grouped(client), await grouped(client)];
  await client.createPersistentSubscriptionToStream(stream, 'second', settings());
  const ofStream = await client.listPersistentSubscriptionsToStream(stream);
  same(new Set(ofStream.map(found => found.groupName)), new Set([group, 'second']));
  const every = (await client.listAllPersistentSubscriptions()).map(found => found.eventSource);
  check(every.includes(stream) && every.includes(other), 'a group is not in the list of all');
});

feature('persistent-update', async ({ client }) => {
  const stream = await grouped(client, [], { resolveLinkTos: true });
  const changed = settings({ startFrom: START, resolveLinkTos: true, maxRetryCount: 3 });
  await client.updatePersistentSubscriptionToStream(stream, group, changed);
  const found = (await info(client, stream)).settings;
  same([found.maxRetryCount, found.resolveLinkTos], [3, true]);
  await fails(
    DoesNotExist, client.updatePersistentSubscriptionToStream(stream, 'missing', changed),
  );
});

feature('persistent-delete', async ({ client }) => {
  const stream = await grouped(client, events(1));
  const consumer = consume(client, stream);
  await consumer.next();
  await client.deletePersistentSubscriptionToStream(stream, group);
  await fails(Dropped, consumer.next());
  await fails(DoesNotExist, consume(client, stream).next());
});

feature('persistent-missing', async ({ client }) => {
  const stream = fresh();
  await fails(DoesNotExist, consume(client, stream).next());
  await fails(DoesNotExist, info(client, stream));
  await fails(DoesNotExist, client.deletePersistentSubscriptionToStream(stream, group));
  await fails(DoesNotExist, client.replayParkedMessagesToStream(stream, group));
});

feature('persistent-max-subscribers', async ({ client }) => {
  const stream = await grouped(client, events(1), { maxSubscriberCount: 1 });
  const consumer = consume(client, stream);
  await consumer.next();
  const error = await fails(MaximumReached, consume(client, stream).next());
  same([error.streamName, error.groupName], [stream, group]);
  await consumer.stop();
});

feature('persistent-restart', async ({ client }) => {
  await client.restartPersistentSubscriptionSubsystem();
  const added = events(1);
  const stream = await grouped(client, added);
  const consumer = consume(client, stream);
  same(ids(await consumer.take(1)), ids(added));
  await consumer.stop();
});
