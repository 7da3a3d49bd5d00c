// What ends events and streams: metadata, deletion, tombstones.
import { all, events, eventually, fails, feature, fresh, ids, kurrent, same } from './feature.mjs';

const { ANY, BACKWARDS, END, NO_STREAM } = kurrent;
const { StreamDeletedError, StreamNotFoundError, WrongExpectedVersionError } = kurrent;
const singly = { credentials: { username: 'admin', password: 'changeit' } };
const revisions = read => read.map(each => each.event.revision);

feature('stream-metadata', async ({ client }) => {
  const stream = fresh();
  same(await client.getStreamMetadata(stream), { streamName: stream });
  const value = { maxCount: 5, acl: { readRoles: ['$all', 'ops'] }, owner: 'ops' };
  await client.setStreamMetadata(stream, value);
  same((await client.getStreamMetadata(stream)).metadata, value);
  await client.setStreamMetadata(stream, {}, { expectedRevision: 0n });
  same((await client.getStreamMetadata(stream)).metadata, {});
});

feature('max-count', async ({ client }) => {
  const [stream, added, more] = [fresh(), events(5), events(1)];
  await client.appendToStream(stream, added);
  await client.setStreamMetadata(stream, { maxCount: 2 });
  same(revisions(await all(client.readStream(stream))), [3n, 4n], 'the revisions');
  await client.appendToStream(stream, more, { streamState: 4n });
  same(ids(await all(client.readStream(stream))), ids([added[4], ...more]));
});

feature('max-age', async ({ client }) => {
  const stream = fresh();
  await client.appendToStream(stream, events(2));
  await client.setStreamMetadata(stream, { maxAge: 1 });
  await eventually('events of more than a second are hidden', async () => {
    try {
      return (await all(client.readStream(stream))).length === 0;
    } catch (error) {
      if (error instanceof StreamNotFoundError) return true;
      throw error;
    }
  });
  await client.appendToStream(stream, events(1), { streamState: 1n });
  same(revisions(await all(client.readStream(stream))), [2n]);
});

feature('truncate-before', async ({ client }) => {
  const [stream, added] = [fresh(), events(4)];
  await client.appendToStream(stream, added);
  await client.setStreamMetadata(stream, { truncateBefore: 2 });
  const read = options => all(client.readStream(stream, options));
  same(ids(await read({})), ids(added.slice(2)));
  same(ids(await read({ fromRevision: 1n })), ids(added.slice(2)));
  const back = await read({ direction: BACKWARDS, fromRevision: END });
  same(ids(back), ids(added.slice(2).toReversed()));
});

feature('delete', async ({ client }) => {
  const stream = fresh();
  await client.appendToStream(stream, events(2));
  const { position } = await client.deleteStream(stream, { expectedRevision: 1n });
  same(typeof position?.commit, 'bigint', 'the position of the deletion');
  await fails(StreamNotFoundError, all(client.readStream(stream)));
});

feature('delete-expected-revision', async ({ client }) => {
  const stream = fresh();
  await client.appendToStream(stream, events(2));
  const options = { expectedRevision: 0n };
  for (const call of ['deleteStream', 'tombstoneStream']) {
    const error = await fails(WrongExpectedVersionError, client[call](stream, options));
    same([error.streamName, error.expectedState, error.actualState], [stream, 0n, 1n]);
  }
});

feature('recreate-after-delete', async ({ client }) => {
  for (const streamState of [NO_STREAM, ANY, 1n]) {
    const [stream, added] = [fresh(), events(2)];
    await client.appendToStream(stream, events(2));
    await client.deleteStream(stream);
    await client.appendToStream(stream, added, { streamState });
    const read = await all(client.readStream(stream));
    same(ids(read), ids(added));
    same(revisions(read), [2n, 3n], 'the revisions');
  }
});

feature('tombstone', async ({ client }) => {
  const stream = fresh();
  await client.appendToStream(stream, events(2));
  await client.tombstoneStream(stream, { expectedRevision: 1n });
  const deleted = async promise => {
    const error = await fails(StreamDeletedError, promise);
    same(error.streamName, stream);
  };
  await deleted(all(client.readStream(stream)));
  await deleted(client.appendToStream(stream, events(1)));
  await deleted(client.appendToStream(stream, events(1), singly));
  await deleted(client.deleteStream(stream));
});
