"""What every feature uses: how it is declared, where it runs, and how it waits."""

import json
import time
from queue import Queue
from threading import Thread
from uuid import uuid4

from kurrentdbclient import KurrentDBClient, NewEvent, StreamState

# How long one call, or one wait, may take.
LIMIT_SECONDS = 20.0
PAUSE_SECONDS = 0.02

FEATURES = {}


def feature(name):
    """Declares what proves a feature: a function that gets the servers, and fails by an exception."""

    def declare(prove):
        assert name not in FEATURES, f"{name} is declared twice"
        FEATURES[name] = prove
        return prove

    return declare


class Servers:
    """The servers that the harness has started for this program."""

    def __init__(self, options, ask):
        self.plain = options["plain"]
        self.secure = options["secure"]
        self.restarted = options["restarted"]
        self.authority = options["authority"]
        self.user = options["user"]
        self.password = options["password"]
        self._ask = ask
        self.client = KurrentDBClient(f"kurrentdb://{self.plain}?tls=false")

    def secure_client(self, user=None, password=None, authority=None):
        user, password = user or self.user, password or self.password
        ca = authority or self.authority
        return KurrentDBClient(f"kurrentdb://{user}:{password}@{self.secure}?tls=true&tlsCaFile={ca}")

    def stop(self):
        """Stops the server that is there to be restarted."""
        self._ask("stop")

    def start(self):
        """Starts it again, with what it had."""
        self._ask("start")


def fresh(category="conformance"):
    """A name of a stream that nobody else uses."""
    return f"{category}-{uuid4().hex}"


def events(count, event_type="happened"):
    """New events, numbered in their data."""
    return [NewEvent(type=event_type, data=json.dumps({"n": n}).encode()) for n in range(count)]


def append(servers, stream, new, expected=StreamState.ANY):
    """Appends events in one call; returns the position of the last one."""
    return servers.client.append_to_stream(stream, current_version=expected, events=new)


def ids(some):
    """The ids of events, new or recorded."""
    return [event.id for event in some]


def same(actual, expected, what="the result"):
    assert actual == expected, f"{what} is {actual!r}, not {expected!r}"


def fails(kind, call):
    """The error of a call that has to fail with one of this kind."""
    try:
        result = call()
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{kind.__name__} expected, not {error!r}") from error
    raise AssertionError(f"{kind.__name__} expected, but it gave {result!r}")


def eventually(what, condition):
    """Waits until a condition gives something true, and returns it."""
    end = time.monotonic() + LIMIT_SECONDS
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"waited {LIMIT_SECONDS} s in vain: {what}"
        time.sleep(PAUSE_SECONDS)


def take(subscription, count):
    """The next items of a subscription, which ends by its own deadline where there are too few."""
    return [next(subscription) for _ in range(count)]


class Consumers:
    """Several consumers of one group, each in a thread, which acknowledge whatever they get."""

    def __init__(self, subscriptions):
        self.arrived = Queue()
        self.subscriptions = subscriptions
        for number, subscription in enumerate(subscriptions):
            Thread(target=self._consume, args=(number, subscription), daemon=True).start()

    def _consume(self, number, subscription):
        try:
            for event in subscription:
                subscription.ack(event)
                self.arrived.put((number, event))
        except Exception as error:
            self.arrived.put((number, error))

    def take(self, count):
        """What arrived next, with the number of the consumer that got it."""
        taken = [self.arrived.get(timeout=LIMIT_SECONDS) for _ in range(count)]
        for _, event in taken:
            if isinstance(event, Exception):
                raise event
        return taken

    def stop(self):
        for subscription in self.subscriptions:
            subscription.stop()
