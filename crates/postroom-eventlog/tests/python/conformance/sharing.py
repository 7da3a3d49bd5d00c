"""Persistent subscriptions: how consumers share, and groups on the whole log and on links."""

from feature import (
    LIMIT_SECONDS,
    Consumers,
    append,
    events,
    eventually,
    feature,
    fresh,
    ids,
    same,
    take,
)

GROUP = "group"


def two_consumers(servers, stream):
    def consume():
        return servers.client.read_subscription_to_stream(
            GROUP, stream, event_buffer_size=20, max_ack_delay=0.02, timeout=LIMIT_SECONDS
        )

    return Consumers([consume(), consume()])


@feature("persistent-round-robin")
def round_robin(servers):
    stream, new = fresh(), events(10)
    create = servers.client.create_subscription_to_stream
    create(GROUP, stream, consumer_strategy="RoundRobin")
    consumers = two_consumers(servers, stream)
    append(servers, stream, new)
    arrived = consumers.take(10)
    consumers.stop()
    same({event.id for _, event in arrived}, set(ids(new)), "what arrived")
    shares = [sum(number == each for number, _ in arrived) for each in (0, 1)]
    same(shares, [5, 5], "the shares")


@feature("persistent-dispatch-to-single")
def single(servers):
    stream, new = fresh(), events(10)
    create = servers.client.create_subscription_to_stream
    create(GROUP, stream, consumer_strategy="DispatchToSingle")
    consumers = two_consumers(servers, stream)
    append(servers, stream, new)
    arrived = consumers.take(10)
    consumers.stop()
    same({event.id for _, event in arrived}, set(ids(new)), "what arrived")
    same(len({number for number, _ in arrived}), 1, "the number of consumers that got events")


@feature("persistent-pinned")
def pinned(servers):
    category = fresh("c").replace("-", "")
    servers.client.create_subscription_to_stream(
        GROUP, f"$ce-{category}", resolve_links=True, consumer_strategy="Pinned"
    )
    consumers = two_consumers(servers, f"$ce-{category}")
    streams = [fresh(category) for _ in range(16)]
    for _ in range(3):
        for stream in streams:
            append(servers, stream, events(1))
    arrived = consumers.take(48)
    consumers.stop()
    homes = {}
    for number, event in arrived:
        homes.setdefault(event.stream_name, set()).add(number)
    same(set(homes), set(streams), "the streams")
    assert all(len(home) == 1 for home in homes.values()), "a stream went to both consumers"
    same({number for number, _ in arrived}, {0, 1}, "the consumers that got events")


def consume_all(servers, group):
    return servers.client.read_subscription_to_all(
        group, max_ack_delay=0.02, timeout=LIMIT_SECONDS
    )


@feature("persistent-all")
def whole_log(servers):
    group, new = fresh("group"), events(3)
    start = append(servers, fresh(), new[:1])
    servers.client.create_subscription_to_all(group, commit_position=start)
    append(servers, fresh(), new[1:])
    subscription = consume_all(servers, group)
    read = take(subscription, 3)
    same(ids(read), ids(new))
    subscription.nack(read[0], "park")
    for event in read[1:]:
        subscription.ack(event)
    info = lambda: servers.client.get_subscription_info(group)
    eventually("one is parked", lambda: info().parked_message_count == 1)
    same(info().event_source, "$all")
    servers.client.replay_parked_events(group)
    [again] = take(subscription, 1)
    same(again.id, new[0].id, "what was replayed")
    subscription.ack(again)
    subscription.stop()
    servers.client.update_subscription_to_all(group, max_retry_count=3)
    same(info().max_retry_count, 3)
    assert group in {found.group_name for found in servers.client.list_subscriptions()}
    servers.client.delete_subscription(group)


@feature("persistent-all-filter")
def filtered(servers):
    group, mark = fresh("group"), fresh("m")
    new = events(3, f"{mark}-wanted")
    append(servers, fresh(), [*events(2), *new[:2]])
    servers.client.create_subscription_to_all(group, filter_include=(f"{mark}-.*",))
    subscription = consume_all(servers, group)
    append(servers, fresh(), [*events(2), *new[2:]])
    read = take(subscription, 3)
    same(ids(read), ids(new))
    for event in read:
        subscription.ack(event)
    subscription.stop()
    servers.client.delete_subscription(group)


@feature("persistent-links")
def links(servers):
    category, new = fresh("c").replace("-", ""), events(3)
    stream = f"$ce-{category}"
    append(servers, fresh(category), new[:2])
    servers.client.create_subscription_to_stream(
        GROUP, stream, resolve_links=True, message_timeout=1.0
    )
    subscription = servers.client.read_subscription_to_stream(
        GROUP, stream, max_ack_delay=0.02, timeout=LIMIT_SECONDS
    )
    read = take(subscription, 2)
    same(ids(read), ids(new[:2]))
    same([event.link.stream_position for event in read], [0, 1], "the links' revisions")
    for event in read:
        subscription.ack(event)
    info = lambda: servers.client.get_subscription_info(GROUP, stream)
    eventually("all are acknowledged", lambda: info().outstanding_messages_count == 0)
    append(servers, fresh(category), new[2:])
    [third] = take(subscription, 1)
    same(third.id, new[2].id)
    subscription.nack(third, "park")
    eventually("one is parked", lambda: info().parked_message_count == 1)
    servers.client.replay_parked_events(GROUP, stream)
    [again] = take(subscription, 1)
    same(again.id, new[2].id, "what was replayed")
    subscription.ack(again)
    subscription.stop()
