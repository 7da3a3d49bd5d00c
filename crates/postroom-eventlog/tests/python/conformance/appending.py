"""Appending."""

import json

from kurrentdbclient import NewEvent, StreamState
from kurrentdbclient.exceptions import MaximumAppendSizeExceededError, WrongCurrentVersionError

from feature import append, events, fails, feature, fresh, ids, same


@feature("append")
def one(servers):
    stream, new = fresh(), events(1)
    position = servers.client.append_event(stream, event=new[0], current_version=StreamState.ANY)
    read = servers.client.get_stream(stream)
    same(ids(read), ids(new))
    same((read[0].type, read[0].data), (new[0].type, new[0].data))
    same(read[0].commit_position, position, "the position")
    assert read[0].recorded_at is not None, "an event has the time of its append"


@feature("append-batch")
def batch(servers):
    stream, new = fresh(), events(50)
    position = append(servers, stream, new)
    read = servers.client.get_stream(stream)
    same(ids(read), ids(new))
    same(read[-1].commit_position, position, "the position")


@feature("append-nothing")
def nothing(servers):
    stream = fresh()
    append(servers, stream, [])
    same(servers.client.get_current_version(stream), StreamState.NO_STREAM)


@feature("append-idempotent")
def idempotent(servers):
    for expected in (StreamState.ANY, StreamState.NO_STREAM):
        stream, new = fresh(), events(3)
        first = append(servers, stream, new, expected)
        again = append(servers, stream, new, expected)
        same(again, first, "the position of the second append")
        same(ids(servers.client.get_stream(stream)), ids(new))
        more = events(2)
        append(servers, stream, more, 2)
        append(servers, stream, more, 2)
        same(ids(servers.client.get_stream(stream)), ids(new + more))


@feature("append-binary")
def binary(servers):
    stream, data = fresh(), bytes(range(256))
    new = NewEvent(type="blob", data=data, content_type="application/octet-stream")
    append(servers, stream, [new])
    [read] = servers.client.get_stream(stream)
    same((read.data, read.content_type), (data, "application/octet-stream"))


@feature("append-with-metadata")
def metadata(servers):
    stream, value = fresh(), json.dumps({"user": "ä"}).encode()
    append(servers, stream, [NewEvent(type="noted", data=b"{}", metadata=value)])
    [read] = servers.client.get_stream(stream)
    same((read.metadata, read.content_type), (value, "application/json"))


@feature("append-too-large")
def too_large(servers):
    stream = fresh()
    large = NewEvent(type="large", data=b"x" * (2 << 20))
    fails(MaximumAppendSizeExceededError, lambda: append(servers, stream, [large]))
    append(servers, stream, events(1))
    same(len(servers.client.get_stream(stream)), 1, "the number of events")


@feature("expected-any")
def expected_any(servers):
    stream = fresh()
    append(servers, stream, events(1), StreamState.ANY)
    append(servers, stream, events(1), StreamState.ANY)
    same(servers.client.get_current_version(stream), 1)


def wrong(servers, stream, expected, actual):
    """An append that fails by its expectation, by each of the two calls."""
    [event] = events(1)
    for new in (event, [event]):
        error = fails(WrongCurrentVersionError, lambda n=new: append(servers, stream, n, expected))
        same((error.actual_version, error.expected_version), (actual, expected))


@feature("expected-no-stream")
def expected_no_stream(servers):
    stream = fresh()
    append(servers, stream, events(1), StreamState.NO_STREAM)
    wrong(servers, stream, StreamState.NO_STREAM, 0)


@feature("expected-stream-exists")
def expected_exists(servers):
    stream = fresh()
    wrong(servers, stream, StreamState.EXISTS, StreamState.NO_STREAM)
    append(servers, stream, events(1))
    append(servers, stream, events(1), StreamState.EXISTS)
    same(servers.client.get_current_version(stream), 1)


@feature("expected-revision")
def expected_revision(servers):
    stream = fresh()
    wrong(servers, stream, 0, StreamState.NO_STREAM)
    append(servers, stream, events(2))
    append(servers, stream, events(1), 1)
    wrong(servers, stream, 1, 2)
    wrong(servers, stream, 7, 2)
    same(servers.client.get_current_version(stream), 2)
