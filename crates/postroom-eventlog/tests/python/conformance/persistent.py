"""Persistent subscriptions: what one consumer gets, and how groups are kept."""

from kurrentdbclient.exceptions import (
    AlreadyExistsError,
    CancelledError,
    MaximumSubscriptionsReachedError,
    NotFoundError,
)

from feature import LIMIT_SECONDS, append, events, eventually, fails, feature, fresh, ids, same, take

GROUP = "group"


def group(servers, new=(), **settings):
    """A group on a new stream, from its start; returns the stream."""
    stream = fresh()
    if new:
        append(servers, stream, new)
    servers.client.create_subscription_to_stream(GROUP, stream, **settings)
    return stream


def consume(servers, stream):
    return servers.client.read_subscription_to_stream(
        GROUP, stream, max_ack_delay=0.02, timeout=LIMIT_SECONDS
    )


def info(servers, stream):
    return servers.client.get_subscription_info(GROUP, stream)


@feature("persistent-create")
def create(servers):
    stream = group(servers)
    again = servers.client.create_subscription_to_stream
    fails(AlreadyExistsError, lambda: again(GROUP, stream))
    again("another", stream)


@feature("persistent-ack")
def ack(servers):
    new = events(4)
    stream = group(servers, new[:3], message_timeout=1.0)
    subscription = consume(servers, stream)
    read = take(subscription, 3)
    same(ids(read), ids(new[:3]))
    same([event.retry_count for event in read], [0, 0, 0], "the retries")
    for event in read:
        subscription.ack(event)
    eventually("all are acknowledged", lambda: info(servers, stream).outstanding_messages_count == 0)
    append(servers, stream, new[3:])
    same(ids(take(subscription, 1)), ids(new[3:]), "what comes after acknowledged events")
    subscription.stop()
    # What a consumer leaves behind goes to the next one.
    subscription = consume(servers, stream)
    same(ids(take(subscription, 1)), ids(new[3:]), "what the first consumer left")
    subscription.stop()


@feature("persistent-retry")
def retry(servers):
    new = events(1)
    stream = group(servers, new)
    subscription = consume(servers, stream)
    [first] = take(subscription, 1)
    subscription.nack(first, "retry")
    [second] = take(subscription, 1)
    same((second.id, second.retry_count), (new[0].id, 1))
    subscription.ack(second)
    subscription.stop()


@feature("persistent-skip")
def skip(servers):
    new = events(2)
    stream = group(servers, new[:1])
    subscription = consume(servers, stream)
    subscription.nack(take(subscription, 1)[0], "skip")
    append(servers, stream, new[1:])
    same(ids(take(subscription, 1)), ids(new[1:]))
    subscription.stop()
    same(info(servers, stream).parked_message_count, 0, "the number of parked events")


@feature("persistent-park-and-replay")
def park(servers):
    new = events(3)
    stream = group(servers, new)
    subscription = consume(servers, stream)
    read = take(subscription, 3)
    subscription.nack(read[0], "park")
    subscription.ack(read[1])
    subscription.nack(read[2], "park")
    eventually("two are parked", lambda: info(servers, stream).parked_message_count == 2)
    servers.client.replay_parked_events(GROUP, stream)
    again = take(subscription, 2)
    same(set(ids(again)), {new[0].id, new[2].id}, "what was replayed")
    for event in again:
        subscription.ack(event)
    eventually("none is parked", lambda: info(servers, stream).parked_message_count == 0)
    servers.client.replay_parked_events(GROUP, stream)
    more = events(1)
    append(servers, stream, more)
    same(ids(take(subscription, 1)), ids(more), "what comes after a replay of nothing")
    subscription.stop()


@feature("persistent-message-timeout")
def message_timeout(servers):
    new = events(1)
    stream = group(servers, new, message_timeout=0.5)
    subscription = consume(servers, stream)
    first, second = take(subscription, 2)
    same((first.id, second.id), (new[0].id, new[0].id))
    same((first.retry_count, second.retry_count), (0, 1), "the retries")
    subscription.ack(second)
    subscription.stop()


@feature("persistent-max-retries")
def max_retries(servers):
    stream = group(servers, events(1), max_retry_count=1)
    subscription = consume(servers, stream)
    for _ in range(2):
        subscription.nack(take(subscription, 1)[0], "retry")
    eventually("it is parked", lambda: info(servers, stream).parked_message_count == 1)
    subscription.stop()


@feature("persistent-start-from")
def start_from(servers):
    new = events(4)
    stream = fresh()
    append(servers, stream, new[:3])
    create = servers.client.create_subscription_to_stream
    create("from-revision", stream, stream_position=1)
    create("from-end", stream, from_end=True)
    read = servers.client.read_subscription_to_stream
    middle = read("from-revision", stream, timeout=LIMIT_SECONDS)
    same(ids(take(middle, 2)), ids(new[1:3]))
    end = read("from-end", stream, timeout=LIMIT_SECONDS)
    append(servers, stream, new[3:])
    same(ids(take(end, 1)), ids(new[3:]))
    middle.stop()
    end.stop()


@feature("persistent-info")
def get_info(servers):
    stream = group(servers, events(1), max_retry_count=7, consumer_strategy="RoundRobin")
    subscription = consume(servers, stream)
    take(subscription, 1)
    found = info(servers, stream)
    same((found.event_source, found.group_name), (stream, GROUP))
    same((found.max_retry_count, found.consumer_strategy), (7, "RoundRobin"))
    same((found.message_timeout, found.start_from), (30.0, "0"))
    same((len(found.connections), found.outstanding_messages_count), (1, 1))
    subscription.stop()


@feature("persistent-list")
def list_groups(servers):
    stream, other = group(servers), group(servers)
    servers.client.create_subscription_to_stream("second", stream)
    of_stream = servers.client.list_subscriptions_to_stream(stream)
    same({found.group_name for found in of_stream}, {GROUP, "second"})
    every = {found.event_source for found in servers.client.list_subscriptions()}
    assert {stream, other} <= every, "a group is not in the list of all"


@feature("persistent-update")
def update(servers):
    stream = group(servers, resolve_links=True)
    servers.client.update_subscription_to_stream(GROUP, stream, max_retry_count=3)
    found = info(servers, stream)
    same((found.max_retry_count, found.resolve_links), (3, True))
    update_missing = servers.client.update_subscription_to_stream
    fails(NotFoundError, lambda: update_missing("missing", stream, max_retry_count=3))


@feature("persistent-delete")
def delete(servers):
    stream = group(servers, events(1))
    subscription = consume(servers, stream)
    take(subscription, 1)
    servers.client.delete_subscription(GROUP, stream)
    fails(CancelledError, lambda: next(subscription))
    fails(NotFoundError, lambda: consume(servers, stream))


@feature("persistent-missing")
def missing(servers):
    stream = fresh()
    fails(NotFoundError, lambda: consume(servers, stream))
    fails(NotFoundError, lambda: info(servers, stream))
    fails(NotFoundError, lambda: servers.client.delete_subscription(GROUP, stream))
    fails(NotFoundError, lambda: servers.client.replay_parked_events(GROUP, stream))


@feature("persistent-max-subscribers")
def max_subscribers(servers):
    stream = group(servers, max_subscriber_count=1)
    subscription = consume(servers, stream)
    fails(MaximumSubscriptionsReachedError, lambda: consume(servers, stream))
    subscription.stop()
