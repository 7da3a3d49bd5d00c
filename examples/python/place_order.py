"""Place an order: its row and its message commit together, or not at all.

Two ways to enqueue, both plain SQL. The function `core_outbox.enqueue` says whether the message
is new and returns the first one's id when it is not; the plain INSERT suits tools that only know
tables. Neither sends anything: a relay delivers what is committed.
"""

import os
import sys
import uuid

import psycopg
from psycopg.types.json import Jsonb

INTEGRATION = "webhook:fulfilment"
EVENT_TYPE = "order.placed.v1"


def create_orders(connection):
    """Creates the application's own table."""
    with connection.transaction():
        connection.execute(
            """
            CREATE TABLE IF NOT EXISTS orders (
                id          uuid PRIMARY KEY,
                customer    text NOT NULL,
                total_cents bigint NOT NULL
            )
            """
        )


def place_order(connection, order_id, customer, total_cents):
    """Places an order; a retry with the same id changes nothing.

    Returns the message's id and whether it is new.
    """
    with connection.transaction():
        insert_order(connection, order_id, customer, total_cents)
        return connection.execute(
            """
            SELECT id, is_new FROM core_outbox.enqueue(
                integration => %(integration)s,
                event_type  => %(event_type)s,
                payload     => %(payload)s,
                stream      => %(stream)s,
                event_id    => %(event_id)s
            )
            """,
            message(order_id, customer, total_cents),
        ).fetchone()


def place_order_by_insert(connection, order_id, customer, total_cents):
    """The same with nothing but a table: the database makes the delivery."""
    with connection.transaction():
        insert_order(connection, order_id, customer, total_cents)
        connection.execute(
            """
            INSERT INTO core_outbox.integration_outbox
                (source_stream_id, source_event_id, integration_type, event_type, payload)
            VALUES (%(stream)s, %(event_id)s, %(integration)s, %(event_type)s, %(payload)s)
            ON CONFLICT DO NOTHING
            """,
            message(order_id, customer, total_cents),
        )


def insert_order(connection, order_id, customer, total_cents):
    """Writes the order's row, unless it is there."""
    connection.execute(
        "INSERT INTO orders (id, customer, total_cents) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (order_id, customer, total_cents),
    )


def message(order_id, customer, total_cents):
    """What the receiver will be told. The event id follows from the order, so that a retry is
    recognised as the same event."""
    return {
        "integration": INTEGRATION,
        "event_type": EVENT_TYPE,
        "stream": f"order-{order_id}",
        "event_id": f"order-placed-{order_id}",
        "payload": Jsonb(
            {"orderId": str(order_id), "customer": customer, "totalCents": total_cents}
        ),
    }


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python place_order.py CUSTOMER TOTAL_CENTS")
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as database:
        create_orders(database)
        order = uuid.uuid4()
        message_id, _ = place_order(database, order, sys.argv[1], int(sys.argv[2]))
        print(f"order {order} placed, message {message_id} enqueued")
