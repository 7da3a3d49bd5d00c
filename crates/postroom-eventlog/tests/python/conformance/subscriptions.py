"""Catch-up subscriptions."""

from kurrentdbclient import CaughtUp, Checkpoint

from feature import LIMIT_SECONDS, append, events, feature, fresh, ids, same, take


def to_stream(servers, stream, **options):
    return servers.client.subscribe_to_stream(stream, timeout=LIMIT_SECONDS, **options)


def to_all(servers, **options):
    return servers.client.subscribe_to_all(timeout=LIMIT_SECONDS, **options)


def until(subscription, kind):
    """What a subscription gives up to the first item of a kind, and that item."""
    before = []
    while not isinstance(item := next(subscription), kind):
        before.append(item)
    return before, item


@feature("catch-up-to-live-stream")
def stream(servers):
    name, new = fresh(), events(5)
    append(servers, name, new[:3])
    subscription = to_stream(servers, name)
    same(ids(take(subscription, 3)), ids(new[:3]))
    append(servers, name, new[3:])
    same(ids(take(subscription, 2)), ids(new[3:]))
    subscription.stop()


@feature("catch-up-to-live-all")
def whole_log(servers):
    new = events(4)
    start = append(servers, fresh(), events(1))
    append(servers, fresh(), new[:2])
    subscription = to_all(servers, commit_position=start)
    same(ids(take(subscription, 2)), ids(new[:2]))
    append(servers, fresh(), new[2:])
    same(ids(take(subscription, 2)), ids(new[2:]))
    subscription.stop()


@feature("subscribe-after-revision")
def after_revision(servers):
    name, new = fresh(), events(4)
    append(servers, name, new)
    subscription = to_stream(servers, name, stream_position=1)
    same(ids(take(subscription, 2)), ids(new[2:]))
    subscription.stop()


@feature("subscribe-after-position")
def after_position(servers):
    new = events(3)
    first = append(servers, fresh(), new[:1])
    append(servers, fresh(), new[1:])
    subscription = to_all(servers, commit_position=first)
    same(ids(take(subscription, 2)), ids(new[1:]))
    subscription.stop()


@feature("subscribe-from-end")
def from_end(servers):
    name, new = fresh(), events(3)
    append(servers, name, new[:1])
    of_stream = to_stream(servers, name, from_end=True)
    of_all = to_all(servers, from_end=True)
    append(servers, name, new[1:])
    same(ids(take(of_stream, 2)), ids(new[1:]))
    same(ids(take(of_all, 2)), ids(new[1:]))
    of_stream.stop()
    of_all.stop()


@feature("subscribe-missing-stream")
def missing(servers):
    name, new = fresh(), events(2)
    subscription = to_stream(servers, name)
    append(servers, name, new)
    same(ids(take(subscription, 2)), ids(new))
    subscription.stop()


@feature("caught-up")
def caught_up(servers):
    name = fresh()
    position = append(servers, name, events(3))
    subscription = to_stream(servers, name, include_caught_up=True)
    before, notice = until(subscription, CaughtUp)
    same((len(before), notice.stream_position), (3, 2))
    assert notice.recorded_at is not None, "the notice has a time"
    subscription.stop()
    subscription = to_all(servers, commit_position=position, include_caught_up=True)
    _, notice = until(subscription, CaughtUp)
    assert notice.commit_position >= position, "the notice has a position to resume from"
    subscription.stop()


@feature("filter-prefix")
def prefix(servers):
    mark, wanted = fresh("m"), None
    start = append(servers, fresh(), events(1))
    wanted = events(3, f"{mark}-wanted")
    by = dict(filter_include=(f"{mark}-wanted",), filter_by_prefix=True)
    append(servers, fresh(), [*events(2), *wanted[:2]])
    subscription = to_all(servers, commit_position=start, **by)
    same(ids(take(subscription, 2)), ids(wanted[:2]))
    append(servers, fresh(), [*events(2), *wanted[2:]])
    same(ids(take(subscription, 1)), ids(wanted[2:]))
    subscription.stop()


@feature("filter-regex")
def regex(servers):
    mark, new = fresh("m"), events(3)
    start = append(servers, fresh(), events(1))
    by = dict(filter_include=(f"{mark}-[0-9]+",), filter_by_stream_name=True)
    append(servers, f"{mark}-12", new[:1])
    append(servers, f"{mark}-x", events(1))
    subscription = to_all(servers, commit_position=start, **by)
    append(servers, f"{mark}-3", new[1:])
    same(ids(take(subscription, 3)), ids(new))
    subscription.stop()


@feature("filter-checkpoint")
def checkpoint(servers):
    start = append(servers, fresh(), events(1))
    end = append(servers, fresh(), events(200, "unwanted"))
    by = dict(filter_include=(fresh("never"),), include_checkpoints=True, include_caught_up=True)
    subscription = to_all(
        servers, commit_position=start, window_size=10, checkpoint_interval_multiplier=2, **by
    )
    before, _ = until(subscription, CaughtUp)
    subscription.stop()
    assert all(isinstance(item, Checkpoint) for item in before), "nothing else was wanted"
    positions = [item.commit_position for item in before]
    assert len(positions) >= 10, f"200 events at one in 20 gave {len(positions)} checkpoints"
    same(positions, sorted(positions), "the checkpoints")
    assert start < positions[0] and positions[-1] >= end, "the last one is the log's end"
    # Whoever resumes from it misses nothing.
    new = events(1)
    append(servers, fresh(), new)
    resumed = to_all(servers, commit_position=positions[-1])
    same(ids(take(resumed, 1)), ids(new))
    resumed.stop()
