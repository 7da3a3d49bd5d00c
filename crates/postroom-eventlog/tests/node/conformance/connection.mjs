// Reaching the server: discovery, TLS, users, restarts; and what it refuses.
import {
  Reader, all, check, events, eventually, fails, feature, fresh, ids, kurrent, same,
} from './feature.mjs';

const { NO_STREAM, PARK, START, persistentSubscriptionToStreamSettingsFromDefaults: settings } = kurrent;
const { AccessDeniedError, StreamNotFoundError, UnsupportedError } = kurrent;

async function roundTrip(client, options = {}) {
  const [stream, added] = [fresh(), events(2)];
  await client.appendToStream(stream, added, { streamState: NO_STREAM, ...options });
  same(ids(await all(client.readStream(stream, options))), ids(added));
  const subscription = new Reader(client.subscribeToStream(stream, options));
  same(ids(await subscription.take(2)), ids(added));
  await subscription.stop();
  await client.dispose();
}

feature('discover', async servers => {
  for (const scheme of ['kurrentdb+discover', 'esdb+discover'])
    await roundTrip(servers.connect(`${scheme}://${servers.plain}?tls=false`));
});

feature('tls', async servers => roundTrip(servers.secureClient()));

feature('tls-untrusted', async servers => {
  const client = servers.secureClient({ authority: null });
  // This client passes on the error of its transport where it asks what the server supports.
  const error = await fails(Error, client.appendToStream(fresh(), events(1)));
  check(/unable to verify the first certificate/.test(error.message), error.message);
});

feature('auth-right', async servers => {
  await roundTrip(servers.secureClient());
  const { user: username, password } = servers;
  await roundTrip(servers.secureClient({ user: null }), { credentials: { username, password } });
});

async function refused(client) {
  const [stream, group] = [fresh(), 'group'];
  const denied = promise => fails(AccessDeniedError, promise);
  await denied(client.appendToStream(stream, events(1)));
  await denied(all(client.readStream(stream)));
  await denied(new Reader(client.subscribeToStream(stream)).next());
  await denied(client.createPersistentSubscriptionToStream(stream, group, settings()));
  await denied(new Reader(client.subscribeToPersistentSubscriptionToStream(stream, group)).next());
  await denied(client.deleteStream(stream));
}

feature('auth-wrong', async servers => {
  await refused(servers.secureClient({ password: 'wrong' }));
  await refused(servers.secureClient({ user: 'nobody' }));
});

feature('auth-none', async servers => refused(servers.secureClient({ user: null })));

feature('reconnect-after-restart', async servers => {
  const client = servers.connect(`kurrentdb://${servers.restarted}?tls=false`);
  const [stream, added] = [fresh(), events(3)];
  await client.appendToStream(stream, added.slice(0, 2), { streamState: NO_STREAM });
  const subscription = new Reader(client.subscribeToStream(stream));
  await subscription.take(2);
  await servers.stop();
  await fails(Error, subscription.next());
  await servers.start();
  // This client fails what was under way, and connects again for what comes after.
  await eventually('an append that succeeds', async () => {
    try {
      return await client.appendToStream(stream, added.slice(2), { streamState: 1n });
    } catch {
      return undefined;
    }
  });
  same(ids(await all(client.readStream(stream))), ids(added));
  await client.dispose();
});

feature('persistent-after-restart', async servers => {
  const connect = () => servers.connect(`kurrentdb://${servers.restarted}?tls=false`);
  const [stream, group, added] = [fresh(), 'group', events(3)];
  const before = connect();
  await before.appendToStream(stream, added);
  const by = settings({ startFrom: START, maxRetryCount: 3 });
  await before.createPersistentSubscriptionToStream(stream, group, by);
  const info = client => client.getPersistentSubscriptionToStreamInfo(stream, group);
  const first = new Reader(before.subscribeToPersistentSubscriptionToStream(stream, group));
  const [parked] = await first.take(3);
  await first.subscription.nack(PARK, 'because', parked);
  const isParked = async () => (await info(before)).stats.parkedMessageCount === 1n;
  await eventually('it is parked', isParked);
  await first.stop();
  await before.dispose();
  await servers.stop();
  await servers.start();
  const after = connect();
  const found = await info(after);
  same([found.settings.maxRetryCount, found.stats.parkedMessageCount], [3, 1n]);
  const second = new Reader(after.subscribeToPersistentSubscriptionToStream(stream, group));
  same(ids(await second.take(2)), ids(added.slice(1)), 'what was not acknowledged');
  await second.stop();
  await after.dispose();
});

feature('refuses-projections', async ({ client }) => {
  const error = await fails(Error, client.createProjection('p', 'fromAll()'));
  same(error.code, 12, 'the code of gRPC');
});

feature('refuses-multi-stream-append', async ({ client }) => {
  const streamName = fresh();
  const append = { streamName, events: events(1), expectedState: NO_STREAM };
  await fails(UnsupportedError, client.multiStreamAppend([append]));
  await fails(StreamNotFoundError, all(client.readStream(streamName)));
});
