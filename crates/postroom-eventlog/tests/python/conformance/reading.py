"""Reading streams and the whole log."""

from kurrentdbclient import StreamState
from kurrentdbclient.exceptions import NotFoundError

from feature import append, events, fails, feature, fresh, ids, same


@feature("read-stream-forwards")
def forwards(servers):
    stream, new = fresh(), events(5)
    append(servers, stream, new)
    read = servers.client.get_stream(stream)
    same(ids(read), ids(new))
    same([event.stream_position for event in read], [0, 1, 2, 3, 4], "the revisions")
    same({event.stream_name for event in read}, {stream}, "the stream")


@feature("read-stream-backwards")
def backwards(servers):
    stream, new = fresh(), events(5)
    append(servers, stream, new)
    read = servers.client.get_stream(stream, backwards=True)
    same(ids(read), ids(reversed(new)))


@feature("read-stream-from-revision")
def from_revision(servers):
    stream, new = fresh(), events(5)
    append(servers, stream, new)
    same(ids(servers.client.get_stream(stream, stream_position=2)), ids(new[2:]))
    read = servers.client.get_stream(stream, stream_position=2, backwards=True)
    same(ids(read), ids(reversed(new[:3])))
    same(ids(servers.client.get_stream(stream, stream_position=5)), [])


@feature("read-stream-limit")
def limit(servers):
    stream, new = fresh(), events(5)
    append(servers, stream, new)
    same(ids(servers.client.get_stream(stream, limit=2)), ids(new[:2]))
    same(ids(servers.client.get_stream(stream, limit=2, stream_position=3)), ids(new[3:]))
    same(ids(servers.client.get_stream(stream, limit=1, backwards=True)), ids(new[4:]))


@feature("read-stream-long")
def long(servers):
    stream, new = fresh(), events(3_000)
    append(servers, stream, new)
    same(ids(servers.client.get_stream(stream)), ids(new))


@feature("read-stream-missing")
def missing(servers):
    fails(NotFoundError, lambda: servers.client.get_stream(fresh()))
    fails(NotFoundError, lambda: servers.client.get_stream(fresh(), backwards=True))
    same(servers.client.get_current_version(fresh()), StreamState.NO_STREAM)


@feature("unusual-names")
def unusual_names(servers):
    for name in ("with space", "ünïcödé ✓", "a/b?c=d&e#f", "no.category", "--"):
        stream, new = f"{name}{fresh()}", events(1, f"{name} happened")
        append(servers, stream, new)
        [read] = servers.client.get_stream(stream)
        same((read.stream_name, read.type), (stream, new[0].type))
        missing_one = f"{name}{fresh()}"
        fails(NotFoundError, lambda n=missing_one: servers.client.get_stream(n))


@feature("read-all-forwards")
def all_forwards(servers):
    new = events(3)
    first = append(servers, fresh(), new[:1])
    append(servers, fresh(), new[1:])
    read = list(servers.client.read_all(commit_position=first, limit=3))
    same(ids(read), ids(new))
    positions = [event.commit_position for event in read]
    same(positions, sorted(set(positions)), "the positions")


@feature("read-all-backwards")
def all_backwards(servers):
    new = events(3)
    append(servers, fresh(), new[:1])
    last = append(servers, fresh(), new[1:])
    read = list(servers.client.read_all(backwards=True, limit=3))
    same(ids(read), ids(reversed(new)))
    before = list(servers.client.read_all(backwards=True, commit_position=last, limit=2))
    same(ids(before), ids(reversed(new[:2])), "what is before a position")


def mixed(servers):
    """Events of two types in streams of two categories; what marks them, and their position."""
    mark = fresh("m").replace("-", "")
    a, b, other = events(2, f"{mark}-a"), events(2, f"{mark}-b"), events(2, "other")
    start = append(servers, fresh(f"{mark}x"), [a[0], b[0], other[0]])
    append(servers, fresh(f"{mark}y"), [a[1], b[1], other[1]])
    return mark, start, a, b, other


@feature("read-all-filter-prefix")
def filter_prefix(servers):
    mark, _, a, b, _ = mixed(servers)
    by = dict(filter_by_prefix=True)
    read = servers.client.read_all(filter_include=(f"{mark}-a",), **by)
    same(ids(read), ids(a))
    read = servers.client.read_all(filter_include=(f"{mark}-a", f"{mark}-b"), limit=3, **by)
    same(ids(read), ids([a[0], b[0], a[1]]))
    read = servers.client.read_all(filter_include=(f"{mark}-",), backwards=True, limit=1, **by)
    same(ids(read), ids(b[1:]))


@feature("read-all-filter-regex")
def filter_regex(servers):
    mark, _, a, b, other = mixed(servers)
    read = servers.client.read_all(filter_include=(f"{mark}-[ac]",))
    same(ids(read), ids(a))
    read = servers.client.read_all(filter_exclude=(r"\$.+", f"{mark}-a"), filter_include=())
    same(ids(read)[-4:], ids([b[0], other[0], b[1], other[1]]))


@feature("read-all-filter-stream")
def filter_stream(servers):
    mark, _, a, b, other = mixed(servers)
    by = dict(filter_by_stream_name=True)
    read = servers.client.read_all(filter_include=(f"{mark}y",), filter_by_prefix=True, **by)
    same(ids(read), ids([a[1], b[1], other[1]]))
    read = servers.client.read_all(filter_include=(f"{mark}[xz]-.*",), **by)
    same(ids(read), ids([a[0], b[0], other[0]]))


@feature("exclude-system-events")
def exclude_system(servers):
    stream = fresh()
    start = append(servers, stream, events(1))
    servers.client.set_stream_metadata(stream, metadata={"$maxCount": 10})
    every = list(servers.client.read_all(commit_position=start, filter_exclude=()))
    assert any(event.type == "$metadata" for event in every), "without a filter they are there"
    usual = list(servers.client.read_all(commit_position=start))
    assert all(not event.type.startswith("$") for event in usual), "the usual filter leaves one"
