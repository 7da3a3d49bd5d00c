"""Reaching the server: discovery, TLS, users, restarts; and what it refuses."""

from kurrentdbclient import KurrentDBClient, NewEvents, StreamState
from kurrentdbclient.exceptions import (
    GrpcError,
    KurrentDBClientError,
    ServiceUnavailableError,
    UnauthenticatedError,
)

from feature import LIMIT_SECONDS, events, fails, feature, fresh, ids, same, take


@feature("discover")
def discover(servers):
    for scheme in ("kurrentdb+discover", "esdb+discover"):
        client = KurrentDBClient(f"{scheme}://{servers.plain}?tls=false")
        stream, new = fresh(), events(1)
        client.append_to_stream(stream, current_version=StreamState.ANY, events=new)
        same(ids(client.get_stream(stream)), ids(new))
        client.close()


@feature("gossip")
def gossip(servers):
    [member] = servers.client.read_gossip()
    same(f"{member.address}:{member.port}", servers.plain)
    same(member.state, "NODE_STATE_LEADER")


def round_trip(client):
    stream, new = fresh(), events(2)
    client.append_to_stream(stream, current_version=StreamState.NO_STREAM, events=new)
    client.append_to_stream(stream, current_version=1, events=events(1)[0])
    same(ids(client.get_stream(stream))[:2], ids(new))
    subscription = client.subscribe_to_stream(stream, timeout=LIMIT_SECONDS)
    same(ids(take(subscription, 2)), ids(new))
    subscription.stop()
    client.close()


@feature("tls")
def tls(servers):
    round_trip(servers.secure_client())


@feature("tls-untrusted")
def tls_untrusted(servers):
    # With the certificates of this library, which do not include the tests' authority.
    uri = f"kurrentdb://{servers.user}:{servers.password}@{servers.secure}?tls=true"
    client = KurrentDBClient(uri)
    fails(ServiceUnavailableError, lambda: client.get_stream(fresh(), timeout=LIMIT_SECONDS))


@feature("auth-right")
def auth_right(servers):
    client = servers.secure_client()
    client.get_commit_position()
    round_trip(client)


@feature("auth-wrong")
def auth_wrong(servers):
    client = servers.secure_client(password="wrong")
    stream = fresh()
    fails(UnauthenticatedError, lambda: client.get_stream(stream))
    fails(UnauthenticatedError, lambda: client.append_to_stream(
        stream, current_version=StreamState.ANY, events=events(1)
    ))
    fails(UnauthenticatedError, lambda: client.append_to_stream(
        stream, current_version=StreamState.ANY, events=events(1)[0]
    ))
    fails(UnauthenticatedError, lambda: client.create_subscription_to_stream("g", stream))
    fails(UnauthenticatedError, lambda: client.subscribe_to_all(timeout=LIMIT_SECONDS))
    client.close()
    client = servers.secure_client(user="nobody")
    fails(UnauthenticatedError, lambda: client.get_stream(stream))
    client.close()


@feature("reconnect-after-restart")
def reconnect(servers):
    client = KurrentDBClient(f"kurrentdb://{servers.restarted}?tls=false")
    stream, new = fresh(), events(3)
    client.append_to_stream(stream, current_version=StreamState.NO_STREAM, events=new[:2])
    subscription = client.subscribe_to_stream(stream, timeout=LIMIT_SECONDS)
    take(subscription, 2)
    servers.stop()
    fails(KurrentDBClientError, lambda: next(subscription))
    servers.start()
    client.append_to_stream(stream, current_version=1, events=new[2:])
    same(ids(client.get_stream(stream)), ids(new))
    client.close()


@feature("persistent-after-restart")
def persistent_restart(servers):
    client = KurrentDBClient(f"kurrentdb://{servers.restarted}?tls=false")
    stream, new = fresh(), events(3)
    client.append_to_stream(stream, current_version=StreamState.ANY, events=new)
    client.create_subscription_to_stream("group", stream, max_retry_count=3)
    subscription = client.read_subscription_to_stream("group", stream, timeout=LIMIT_SECONDS)
    parked, _, _ = take(subscription, 3)
    same(parked.id, new[0].id)
    subscription.nack(parked, "park")
    subscription.stop()
    servers.stop()
    servers.start()
    info = client.get_subscription_info("group", stream)
    same((info.max_retry_count, info.parked_message_count), (3, 1))
    again = client.read_subscription_to_stream("group", stream, timeout=LIMIT_SECONDS)
    same(ids(take(again, 2)), ids(new[1:]), "what was not acknowledged")
    again.stop()
    client.close()


@feature("refuses-projections")
def projections(servers):
    create = servers.client.create_projection
    fails(GrpcError, lambda: create(name="p", query="fromAll()", timeout=LIMIT_SECONDS))


@feature("refuses-multi-stream-append")
def multi_stream_append(servers):
    stream = fresh()
    new = NewEvents(stream_name=stream, events=events(1), current_version=StreamState.ANY)
    fails(GrpcError, lambda: servers.client.multi_append_to_stream([new]))
    same(servers.client.get_current_version(stream), StreamState.NO_STREAM)
