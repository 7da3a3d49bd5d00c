// Appending. This client uses `BatchAppend`, and `Append` where a call brings credentials of its own.
import {
  all, check, events, fails, feature, fresh, ids, kurrent, same,
} from './feature.mjs';

const { ANY, NO_STREAM, STREAM_EXISTS, binaryEvent, jsonEvent } = kurrent;
const { MaxAppendSizeExceededError, StreamNotFoundError, WrongExpectedVersionError } = kurrent;

// In the clear they are not sent; they only choose the call.
const singly = { credentials: { username: 'admin', password: 'changeit' } };

feature('append', async ({ client }) => {
  const [stream, added] = [fresh(), events(2)];
  const result = await client.appendToStream(stream, added, singly);
  const read = await all(client.readStream(stream));
  same(ids(read), ids(added));
  const { event } = read[1];
  same([event.type, event.data, event.isJson], ['happened', { n: 1 }, true]);
  same([result.success, result.nextExpectedRevision, result.position], [true, 1n, event.position]);
  check(Math.abs(Date.now() - event.created.getTime()) < 60_000, `created at ${event.created}`);
});

feature('append-batch', async ({ client }) => {
  const [stream, added] = [fresh(), events(50)];
  const result = await client.appendToStream(stream, added);
  const read = await all(client.readStream(stream));
  same(ids(read), ids(added));
  const { position } = read[49].event;
  same([result.success, result.nextExpectedRevision, result.position], [true, 49n, position]);
  // Many at a time, in one call of gRPC.
  const streams = Array.from({ length: 20 }, () => fresh());
  await Promise.all(streams.map(name => client.appendToStream(name, events(3))));
  for (const name of streams) same((await all(client.readStream(name))).length, 3);
});

feature('append-batch-in-parts', async ({ client }) => {
  const [stream, added] = [fresh(), events(50)];
  const parts = { batchAppendSize: 200 };
  const [result] = await Promise.all([
    client.appendToStream(stream, added, parts),
    client.appendToStream(fresh(), events(50), parts),
  ]);
  same(result.nextExpectedRevision, 49n);
  same(ids(await all(client.readStream(stream))), ids(added));
});

feature('append-nothing', async ({ client }) => {
  const stream = fresh();
  await client.appendToStream(stream, []);
  await client.appendToStream(stream, [], singly);
  await fails(StreamNotFoundError, all(client.readStream(stream)));
});

feature('append-idempotent', async ({ client }) => {
  for (const options of [{}, singly]) {
    for (const streamState of [ANY, NO_STREAM]) {
      const [stream, added, more] = [fresh(), events(3), events(2)];
      const append = (some, state) =>
        client.appendToStream(stream, some, { streamState: state, ...options });
      const first = await append(added, streamState);
      same(await append(added, streamState), first, 'the second append');
      await append(more, 2n);
      await append(more, 2n);
      same(ids(await all(client.readStream(stream))), ids([...added, ...more]));
    }
  }
});

feature('append-binary', async ({ client }) => {
  const [stream, data] = [fresh(), Uint8Array.from({ length: 256 }, (_, n) => n)];
  await client.appendToStream(stream, binaryEvent({ type: 'blob', data }));
  const [{ event }] = await all(client.readStream(stream));
  same([event.isJson, Buffer.from(event.data)], [false, Buffer.from(data)]);
});

feature('append-with-metadata', async ({ client }) => {
  const [stream, metadata] = [fresh(), { user: 'ä' }];
  await client.appendToStream(stream, jsonEvent({ type: 'noted', data: { a: 1 }, metadata }));
  const [{ event }] = await all(client.readStream(stream));
  same([event.data, event.metadata], [{ a: 1 }, metadata]);
});

feature('append-too-large', async ({ client }) => {
  const stream = fresh();
  const large = jsonEvent({ type: 'large', data: { text: 'x'.repeat(2 << 20) } });
  for (const options of [{}, singly])
    await fails(MaxAppendSizeExceededError, client.appendToStream(stream, large, options));
  await client.appendToStream(stream, events(1));
  same((await all(client.readStream(stream))).length, 1, 'the number of events');
});

/** An append that fails by its expectation, by each of the two calls. */
async function wrong(client, stream, streamState, actual) {
  for (const options of [{}, singly]) {
    const append = client.appendToStream(stream, events(1), { streamState, ...options });
    const error = await fails(WrongExpectedVersionError, append);
    same([error.streamName, error.expectedState, error.actualState], [stream, streamState, actual]);
  }
}

feature('expected-any', async ({ client }) => {
  const stream = fresh();
  for (const revision of [0n, 1n]) {
    const result = await client.appendToStream(stream, events(1), { streamState: ANY });
    same(result.nextExpectedRevision, revision);
  }
});

feature('expected-no-stream', async ({ client }) => {
  const stream = fresh();
  await client.appendToStream(stream, events(1), { streamState: NO_STREAM });
  await wrong(client, stream, NO_STREAM, 0n);
});

feature('expected-stream-exists', async ({ client }) => {
  const stream = fresh();
  await wrong(client, stream, STREAM_EXISTS, 'no_stream');
  await client.appendToStream(stream, events(1));
  await client.appendToStream(stream, events(1), { streamState: STREAM_EXISTS });
  same((await all(client.readStream(stream))).length, 2, 'the number of events');
});

feature('expected-revision', async ({ client }) => {
  const stream = fresh();
  await wrong(client, stream, 0n, 'no_stream');
  await client.appendToStream(stream, events(2));
  await client.appendToStream(stream, events(1), { streamState: 1n });
  await wrong(client, stream, 1n, 2n);
  await wrong(client, stream, 7n, 2n);
  same((await all(client.readStream(stream))).length, 3, 'the number of events');
});
