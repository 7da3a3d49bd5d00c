"""What ends events and streams: metadata, deletion, tombstones."""

from kurrentdbclient import StreamState
from kurrentdbclient.exceptions import (
    FailedPreconditionError,
    NotFoundError,
    StreamIsDeletedError,
    WrongCurrentVersionError,
)

from feature import append, events, eventually, fails, feature, fresh, ids, same


@feature("stream-metadata")
def metadata(servers):
    stream = fresh()
    same(servers.client.get_stream_metadata(stream), ({}, StreamState.NO_STREAM))
    value = {"$maxCount": 5, "owner": "ops"}
    servers.client.set_stream_metadata(stream, metadata=value)
    same(servers.client.get_stream_metadata(stream), (value, 0))
    servers.client.set_stream_metadata(stream, metadata={}, current_version=0)
    same(servers.client.get_stream_metadata(stream), ({}, 1))
    fails(
        WrongCurrentVersionError,
        lambda: servers.client.set_stream_metadata(stream, metadata={}, current_version=0),
    )


@feature("max-count")
def max_count(servers):
    stream, new = fresh(), events(5)
    append(servers, stream, new)
    servers.client.set_stream_metadata(stream, metadata={"$maxCount": 2})
    read = servers.client.get_stream(stream)
    same([event.stream_position for event in read], [3, 4], "the revisions")
    more = events(1)
    append(servers, stream, more, 4)
    same(ids(servers.client.get_stream(stream)), ids(new[4:] + more))


@feature("max-age")
def max_age(servers):
    stream = fresh()
    append(servers, stream, events(2))
    servers.client.set_stream_metadata(stream, metadata={"$maxAge": 1})

    def is_empty():
        try:
            return not servers.client.get_stream(stream)
        except NotFoundError:
            return True

    eventually("events of more than a second are hidden", is_empty)
    append(servers, stream, events(1), 1)
    same([event.stream_position for event in servers.client.get_stream(stream)], [2])


@feature("truncate-before")
def truncate_before(servers):
    stream, new = fresh(), events(4)
    append(servers, stream, new)
    servers.client.set_stream_metadata(stream, metadata={"$tb": 2})
    same(ids(servers.client.get_stream(stream)), ids(new[2:]))
    same(ids(servers.client.get_stream(stream, stream_position=1)), ids(new[2:]))
    read = servers.client.get_stream(stream, backwards=True)
    same(ids(read), ids(reversed(new[2:])))


@feature("delete")
def delete(servers):
    stream = fresh()
    append(servers, stream, events(2))
    servers.client.delete_stream(stream, current_version=1)
    fails(NotFoundError, lambda: servers.client.get_stream(stream))
    same(servers.client.get_current_version(stream), StreamState.NO_STREAM)


@feature("delete-expected-revision")
def delete_expected(servers):
    stream = fresh()
    append(servers, stream, events(2))
    for call in (servers.client.delete_stream, servers.client.tombstone_stream):
        error = fails(WrongCurrentVersionError, lambda c=call: c(stream, current_version=0))
        same((error.actual_version, error.expected_version), (1, 0))
    fails(NotFoundError, lambda: servers.client.delete_stream(fresh(), current_version=0))
    servers.client.delete_stream(stream, current_version=StreamState.EXISTS)


@feature("recreate-after-delete")
def recreate(servers):
    for expected in (StreamState.NO_STREAM, StreamState.ANY, 1):
        stream, new = fresh(), events(2)
        append(servers, stream, events(2))
        servers.client.delete_stream(stream, current_version=StreamState.ANY)
        append(servers, stream, new, expected)
        read = servers.client.get_stream(stream)
        same(ids(read), ids(new))
        same([event.stream_position for event in read], [2, 3], "the revisions")


@feature("tombstone")
def tombstone(servers):
    stream, [event] = fresh(), events(1)
    append(servers, stream, events(2))
    servers.client.tombstone_stream(stream, current_version=1)
    fails(StreamIsDeletedError, lambda: servers.client.get_stream(stream))
    fails(StreamIsDeletedError, lambda: append(servers, stream, [event]))
    fails(FailedPreconditionError, lambda: append(servers, stream, event))
    fails(
        StreamIsDeletedError,
        lambda: servers.client.delete_stream(stream, current_version=StreamState.ANY),
    )
