// Persistent subscriptions: how consumers share, and groups on the whole log and on links.
import {
  Reader, category, check, events, eventually, feature, fresh, ids, inTime, kurrent, same,
} from './feature.mjs';

const { DISPATCH_TO_SINGLE, PARK, PINNED, ROUND_ROBIN, START, eventTypeFilter } = kurrent;
const {
  persistentSubscriptionToAllSettingsFromDefaults: settingsOfAll,
  persistentSubscriptionToStreamSettingsFromDefaults: settings,
} = kurrent;

const group = 'group';

/** Two consumers, which acknowledge whatever they get: what arrives, with who got it. */
class TwoConsumers {
  constructor(client, stream) {
    this.arrived = [];
    const options = { bufferSize: 20 };
    this.subscriptions = [0, 1].map(number => {
      const each = client.subscribeToPersistentSubscriptionToStream(stream, group, options);
      each.on('data', event => {
        this.arrived.push({ number, event });
        each.ack(event).catch(() => {});
      });
      each.on('error', error => (this.error ??= error));
      return each;
    });
    this.ready = inTime('both consumers', Promise.all(
      this.subscriptions.map(each => new Promise(resolve => each.once('confirmation', resolve))),
    ));
  }

  async take(count) {
    await eventually(`${count} events`, () => {
      if (this.error) throw this.error;
      return this.arrived.length >= count;
    });
    await Promise.all(this.subscriptions.map(each => each.unsubscribe()));
    return this.arrived;
  }
}

feature('persistent-round-robin', async ({ client }) => {
  const [stream, added] = [fresh(), events(10)];
  const by = settings({ consumerStrategyName: ROUND_ROBIN });
  await client.createPersistentSubscriptionToStream(stream, group, by);
  const consumers = new TwoConsumers(client, stream);
  await consumers.ready;
  await client.appendToStream(stream, added);
  const arrived = await consumers.take(10);
  same(new Set(arrived.map(each => each.event.event.id)), new Set(ids(added)), 'what arrived');
  same([0, 1].map(n => arrived.filter(each => each.number === n).length), [5, 5], 'the shares');
});

feature('persistent-dispatch-to-single', async ({ client }) => {
  const [stream, added] = [fresh(), events(10)];
  const by = settings({ consumerStrategyName: DISPATCH_TO_SINGLE });
  await client.createPersistentSubscriptionToStream(stream, group, by);
  const consumers = new TwoConsumers(client, stream);
  await consumers.ready;
  await client.appendToStream(stream, added);
  const arrived = await consumers.take(10);
  same(new Set(arrived.map(each => each.event.event.id)), new Set(ids(added)), 'what arrived');
  same(new Set(arrived.map(each => each.number)).size, 1, 'the number of consumers with events');
});

feature('persistent-pinned', async ({ client }) => {
  const name = category();
  const by = settings({ consumerStrategyName: PINNED, resolveLinkTos: true, startFrom: START });
  await client.createPersistentSubscriptionToStream(`$ce-${name}`, group, by);
  const consumers = new TwoConsumers(client, `$ce-${name}`);
  await consumers.ready;
  const streams = Array.from({ length: 16 }, () => fresh(name));
  for (let n = 0; n < 3; n++)
    for (const stream of streams) await client.appendToStream(stream, events(1));
  const homes = new Map(streams.map(stream => [stream, new Set()]));
  for (const { number, event } of await consumers.take(48))
    homes.get(event.event.streamId).add(number);
  check([...homes.values()].every(home => home.size === 1), 'a stream went to both consumers');
  same(new Set([...homes.values()].flatMap(home => [...home])), new Set([0, 1]), 'the consumers');
});

feature('persistent-all', async ({ client }) => {
  const [name, added] = [fresh('group'), events(3)];
  const { position } = await client.appendToStream(fresh(), added.slice(0, 1));
  const by = settingsOfAll({ startFrom: position });
  await client.createPersistentSubscriptionToAll(name, by);
  await client.appendToStream(fresh(), added.slice(1));
  const consumer = new Reader(client.subscribeToPersistentSubscriptionToAll(name));
  const read = await consumer.take(3);
  same(ids(read), ids(added));
  await consumer.subscription.nack(PARK, 'because', read[0]);
  await consumer.subscription.ack(read[1], read[2]);
  const info = () => client.getPersistentSubscriptionToAllInfo(name);
  await eventually('one is parked', async () => (await info()).stats.parkedMessageCount === 1n);
  const found = await info();
  same([found.eventSource, found.settings.startFrom], ['$all', position]);
  await client.replayParkedMessagesToAll(name);
  const again = await consumer.next();
  same(again.event.id, added[0].id, 'what was replayed');
  await consumer.subscription.ack(again);
  await consumer.stop();
  await client.updatePersistentSubscriptionToAll(name, { ...by, maxRetryCount: 3 });
  same((await info()).settings.maxRetryCount, 3);
  const listed = await client.listPersistentSubscriptionsToAll();
  check(listed.some(each => each.groupName === name), 'it is not in the list');
  await client.deletePersistentSubscriptionToAll(name);
});

feature('persistent-all-filter', async ({ client }) => {
  const [name, type] = [fresh('group'), category()];
  const added = events(3, `${type}-wanted`);
  await client.appendToStream(fresh(), [...events(2), ...added.slice(0, 2)]);
  const filter = eventTypeFilter({ prefixes: [`${type}-`] });
  const by = settingsOfAll({ startFrom: START });
  await client.createPersistentSubscriptionToAll(name, by, { filter });
  const consumer = new Reader(client.subscribeToPersistentSubscriptionToAll(name));
  await client.appendToStream(fresh(), [...events(2), ...added.slice(2)]);
  const read = await consumer.take(3);
  same(ids(read), ids(added));
  await consumer.subscription.ack(...read);
  await consumer.stop();
  await client.deletePersistentSubscriptionToAll(name);
});

feature('persistent-links', async ({ client }) => {
  const [name, added] = [category(), events(3)];
  const stream = `$ce-${name}`;
  await client.appendToStream(fresh(name), added.slice(0, 2));
  const by = settings({ startFrom: START, resolveLinkTos: true, messageTimeout: 1_000 });
  await client.createPersistentSubscriptionToStream(stream, group, by);
  const consumer = new Reader(client.subscribeToPersistentSubscriptionToStream(stream, group));
  const read = await consumer.take(2);
  same(ids(read), ids(added.slice(0, 2)));
  same(read.map(each => each.link.revision), [0n, 1n], "the links' revisions");
  await consumer.subscription.ack(...read);
  const stats = async () => (await client.getPersistentSubscriptionToStreamInfo(stream, group)).stats;
  await eventually('all are acknowledged', async () => !(await stats()).outstandingMessagesCount);
  await client.appendToStream(fresh(name), added.slice(2));
  const third = await consumer.next();
  same(third.event.id, added[2].id);
  await consumer.subscription.nack(PARK, 'because', third);
  await eventually('one is parked', async () => (await stats()).parkedMessageCount === 1n);
  await client.replayParkedMessagesToStream(stream, group);
  const again = await consumer.next();
  same(again.event.id, added[2].id, 'what was replayed');
  await consumer.subscription.ack(again);
  await consumer.stop();
});
