"""An engine that knows nothing of Postroom: it appends its events to `outbox_events` in the transaction that
changes its run, as it did before.

usage: python producer.py COUNT      (DATABASE_URL names the database)
"""

import os
import sys
import uuid

import psycopg
from psycopg.types.json import Jsonb

PER_TRANSACTION = 50


def append(cursor, first, size):
    """A run, and what happened in it."""
    run = uuid.uuid4()
    cursor.execute("INSERT INTO runs (id, steps) VALUES (%s, %s)", (run, size))
    rows = [
        (
            uuid.uuid4(),
            run,
            "StepCompleted",
            f"acme|v1|StepCompleted|{run}|{n}|1",
            Jsonb({"n": n, "runId": str(run)}),
        )
        for n in range(first, first + size)
    ]
    cursor.executemany(
        """
        INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)
        VALUES (%s, %s, %s, %s, %s)
        """,
        rows,
    )
    return len(rows)


def main(count):
    committed = 0
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS runs (id uuid PRIMARY KEY, steps int NOT NULL)")
        for first in range(0, count, PER_TRANSACTION):
            size = min(PER_TRANSACTION, count - first)
            # Some transactions fail on their way: neither their rows nor their events stay.
            if first // PER_TRANSACTION % 10 == 3:
                with connection.transaction(force_rollback=True):
                    append(connection.cursor(), 1_000_000 + first, size)
            with connection.transaction():
                committed += append(connection.cursor(), first, size)
    print(f"committed {committed}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
