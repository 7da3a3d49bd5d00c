"""Streams that the server computes: links by category and by type."""

from feature import LIMIT_SECONDS, append, events, feature, fresh, ids, same, take


def category():
    return fresh("c").replace("-", "")


@feature("category-with-links")
def by_category(servers):
    name, new = category(), events(3)
    first, second = fresh(name), fresh(name)
    append(servers, first, new[:1])
    append(servers, second, new[1:2])
    append(servers, first, new[2:])
    links = servers.client.get_stream(f"$ce-{name}")
    same([link.type for link in links], ["$>"] * 3, "the types")
    same([link.stream_position for link in links], [0, 1, 2], "the revisions")
    targets = [f"0@{first}", f"0@{second}", f"1@{first}"]
    same([link.data.decode() for link in links], targets, "what the links point at")
    resolved = servers.client.get_stream(f"$ce-{name}", resolve_links=True)
    same(ids(resolved), ids(new))
    same([event.link.stream_position for event in resolved], [0, 1, 2], "the links' revisions")
    same([event.link.stream_name for event in resolved], [f"$ce-{name}"] * 3, "the links' stream")
    back = servers.client.get_stream(f"$ce-{name}", resolve_links=True, backwards=True, limit=2)
    same(ids(back), ids([new[2], new[1]]))


@feature("event-type-with-links")
def by_type(servers):
    name = category()
    new = events(2, name)
    first, second = fresh(), fresh()
    append(servers, first, events(1) + new[:1])
    append(servers, second, new[1:])
    links = servers.client.get_stream(f"$et-{name}")
    same([link.data.decode() for link in links], [f"1@{first}", f"0@{second}"])
    resolved = servers.client.get_stream(f"$et-{name}", resolve_links=True)
    same(ids(resolved), ids(new))


@feature("category-live")
def live(servers):
    name, new = category(), events(3)
    append(servers, fresh(name), new[:1])
    subscription = servers.client.subscribe_to_stream(
        f"$ce-{name}", resolve_links=True, timeout=LIMIT_SECONDS
    )
    [first] = take(subscription, 1)
    append(servers, fresh(name), new[1:])
    rest = take(subscription, 2)
    same(ids([first, *rest]), ids(new))
    subscription.stop()
    after = servers.client.subscribe_to_stream(
        f"$ce-{name}",
        resolve_links=True,
        stream_position=first.link.stream_position,
        timeout=LIMIT_SECONDS,
    )
    same(ids(take(after, 2)), ids(new[1:]), "what follows the first link")
    after.stop()


@feature("resolve-deleted-target")
def deleted_target(servers):
    name, new = category(), events(2)
    gone, kept = fresh(name), fresh(name)
    append(servers, gone, new[:1])
    append(servers, kept, new[1:])
    servers.client.tombstone_stream(gone, current_version=0)
    # This client passes over a link whose target is gone.
    resolved = servers.client.get_stream(f"$ce-{name}", resolve_links=True)
    resolved = [event for event in resolved if not event.is_system_event]
    same(ids(resolved), ids(new[1:]))


@feature("all-without-links")
def not_in_all(servers):
    name, new = category(), events(3, fresh("t"))
    start = append(servers, fresh(name), new)
    same(len(servers.client.get_stream(f"$ce-{name}")), 3, "the number of links")
    read = servers.client.read_all(commit_position=start, filter_exclude=())
    assert not [event for event in read if event.is_link_event], "`$all` has a link"
