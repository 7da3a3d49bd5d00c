"""A billing service that knows nothing of Postroom: it puts the state of delivery into the JSON of each event
and inserts it in the transaction that changes an invoice, as it did before.

usage: python producer.py COUNT      (DATABASE_URL names the database)
"""

import datetime
import os
import random
import sys
import time

import psycopg
from psycopg.types.json import Jsonb

PER_TRANSACTION = 50
DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def ulid():
    """48 bits of time, 80 of chance, in base 32."""
    number = int(time.time() * 1000) << 80 | random.getrandbits(80)
    return "".join(DIGITS[number >> shift & 31] for shift in range(125, -1, -5))


def apply_metadata(event):
    """What makes an event pending. The time is written as Go writes it, with nanoseconds."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return event | {
        "outbox_status": "pending",
        "outbox_retry_count": 0,
        "outbox_next_attempt_at": now.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z",
    }


def publish(cursor, first, size):
    """Invoices that are paid, and the event of each."""
    numbers = range(first, first + size)
    cursor.executemany("INSERT INTO invoices (number) VALUES (%s)", [(n,) for n in numbers])
    rows = [
        (
            ulid(),
            "subscription.created" if n % 4 == 0 else "invoice.paid",
            f"tenant-{n % 7}",
            f"inv_{n}",
            Jsonb(
                apply_metadata(
                    {
                        "type": "invoice.paid.v1",
                        "correlation_id": f"req-{n}",
                        "causation_id": f"cmd-{n}",
                        "data": {"n": n, "total": 100},
                    }
                )
            ),
        )
        for n in numbers
    ]
    cursor.executemany(
        "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload) VALUES (%s, %s, %s, %s, %s)",
        rows,
    )
    return len(rows)


def main(count):
    committed = 0
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS invoices (number bigint PRIMARY KEY)")
        for first in range(0, count, PER_TRANSACTION):
            size = min(PER_TRANSACTION, count - first)
            # Some transactions fail on their way: neither their rows nor their events stay.
            if first // PER_TRANSACTION % 10 == 3:
                with connection.transaction(force_rollback=True):
                    publish(connection.cursor(), 1_000_000 + first, size)
            with connection.transaction():
                committed += publish(connection.cursor(), first, size)
    print(f"committed {committed}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
