// Streams that the server computes: links by category and by type.
import {
  Reader, all, category, events, feature, fresh, ids, kurrent, same,
} from './feature.mjs';

const { BACKWARDS, END } = kurrent;
const resolveLinkTos = true;
const targets = links => links.map(each => Buffer.from(each.event.data).toString());

feature('category-with-links', async ({ client }) => {
  const [name, added] = [category(), events(3)];
  const [first, second] = [fresh(name), fresh(name)];
  await client.appendToStream(first, added.slice(0, 1));
  await client.appendToStream(second, added.slice(1, 2));
  await client.appendToStream(first, added.slice(2));
  const read = options => all(client.readStream(`$ce-${name}`, options));
  const links = await read({});
  same(links.map(each => each.event.type), ['$>', '$>', '$>'], 'the types');
  same(links.map(each => each.event.revision), [0n, 1n, 2n], 'the revisions');
  same(targets(links), [`0@${first}`, `0@${second}`, `1@${first}`], 'what the links point at');
  const resolved = await read({ resolveLinkTos });
  same(ids(resolved), ids(added));
  same(resolved.map(each => each.link.revision), [0n, 1n, 2n], "the links' revisions");
  same(new Set(resolved.map(each => each.link.streamId)), new Set([`$ce-${name}`]));
  const back = { resolveLinkTos, direction: BACKWARDS, fromRevision: END, maxCount: 2 };
  same(ids(await read(back)), ids([added[2], added[1]]));
});

feature('event-type-with-links', async ({ client }) => {
  const name = category();
  const [first, second, added] = [fresh(), fresh(), events(2, name)];
  await client.appendToStream(first, [...events(1), added[0]]);
  await client.appendToStream(second, added.slice(1));
  const read = options => all(client.readStream(`$et-${name}`, options));
  same(targets(await read({})), [`1@${first}`, `0@${second}`]);
  same(ids(await read({ resolveLinkTos })), ids(added));
});

feature('category-live', async ({ client }) => {
  const [name, added] = [category(), events(3)];
  await client.appendToStream(fresh(name), added.slice(0, 1));
  const subscribe = options =>
    new Reader(client.subscribeToStream(`$ce-${name}`, { resolveLinkTos, ...options }));
  const live = subscribe({});
  const first = await live.next();
  await client.appendToStream(fresh(name), added.slice(1));
  same(ids([first, ...(await live.take(2))]), ids(added));
  await live.stop();
  const after = subscribe({ fromRevision: first.link.revision });
  same(ids(await after.take(2)), ids(added.slice(1)), 'what follows the first link');
  await after.stop();
});

feature('resolve-deleted-target', async ({ client }) => {
  const [name, added] = [category(), events(2)];
  const [gone, kept] = [fresh(name), fresh(name)];
  await client.appendToStream(gone, added.slice(0, 1));
  await client.appendToStream(kept, added.slice(1));
  await client.tombstoneStream(gone);
  const resolved = await all(client.readStream(`$ce-${name}`, { resolveLinkTos }));
  const first = resolved.find(each => each.link.revision === 0n);
  same(first?.event, undefined, 'the event of a link whose target is gone');
  same(first?.link.type, '$>');
  const second = resolved.find(each => each.link.revision === 1n);
  same(second?.event?.id, added[1].id);
});

feature('all-without-links', async ({ client }) => {
  const name = category();
  const { position } = await client.appendToStream(fresh(name), events(3));
  same((await all(client.readStream(`$ce-${name}`))).length, 3, 'the number of links');
  const read = await all(client.readAll({ fromPosition: position }));
  same(read.filter(each => each.event.type === '$>'), [], 'the links in `$all`');
});
