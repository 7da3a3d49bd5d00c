"""What the example promises, on the real database that DATABASE_URL names (migrated)."""

import os
import unittest
import uuid

import psycopg

from place_order import create_orders, place_order, place_order_by_insert


class PlaceOrder(unittest.TestCase):
    def setUp(self):
        # In autocommit, `with connection.transaction()` is a transaction and nothing else is.
        self.connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
        self.addCleanup(self.connection.close)
        create_orders(self.connection)
        self.order = uuid.uuid4()

    def orders(self):
        """How many rows the order has, seen from another connection."""
        return self.look("SELECT count(*) FROM orders WHERE id = %s", self.order)[0][0]

    def messages(self):
        """The order's messages, seen from another connection."""
        return self.look(
            """
            SELECT id, integration_type, event_type, status, payload
            FROM core_outbox.messages WHERE source_stream_id = %s
            """,
            f"order-{self.order}",
        )

    def deliveries(self):
        """How many of the order's messages are to be delivered: fresh ones are in parcels."""
        return self.look(
            """
            SELECT count(*)
            FROM (SELECT unnest(refs) AS message_id FROM core_outbox.parcel) AS fresh
            JOIN core_outbox.integration_outbox m ON m.id = fresh.message_id
            WHERE m.source_stream_id = %s
            """,
            f"order-{self.order}",
        )[0][0]

    def look(self, query, *parameters):
        with psycopg.connect(os.environ["DATABASE_URL"]) as other:
            return other.execute(query, parameters).fetchall()

    def test_commit_keeps_the_order_and_its_message(self):
        message_id, is_new = place_order(self.connection, self.order, "ada", 4200)
        self.assertTrue(is_new)
        self.assertEqual(self.orders(), 1)
        payload = {"orderId": str(self.order), "customer": "ada", "totalCents": 4200}
        self.assertEqual(
            self.messages(),
            [(message_id, "webhook:fulfilment", "order.placed.v1", "PENDING", payload)],
        )
        self.assertEqual(self.deliveries(), 1)

    def test_rollback_leaves_neither(self):
        self.rolls_back(place_order)

    def test_rollback_leaves_neither_after_a_plain_insert(self):
        self.rolls_back(place_order_by_insert)

    def rolls_back(self, place):
        with self.assertRaisesRegex(RuntimeError, "card declined"):
            with self.connection.transaction():
                place(self.connection, self.order, "ada", 4200)
                raise RuntimeError("card declined")
        self.assertEqual(self.orders(), 0)
        self.assertEqual(self.messages(), [])
        self.assertEqual(self.deliveries(), 0)

    def test_a_retry_returns_the_first_message_unchanged(self):
        first_id, _ = place_order(self.connection, self.order, "ada", 4200)
        second_id, is_new = place_order(self.connection, self.order, "ada", 9999)
        self.assertFalse(is_new)
        self.assertEqual(second_id, first_id)
        (message,) = self.messages()
        self.assertEqual(message[4]["totalCents"], 4200)
        self.assertEqual(self.deliveries(), 1)

    def test_a_plain_insert_is_delivered_too(self):
        place_order_by_insert(self.connection, self.order, "ada", 4200)
        place_order_by_insert(self.connection, self.order, "ada", 4200)
        (message,) = self.messages()
        self.assertEqual(message[3], "PENDING")
        self.assertEqual(self.deliveries(), 1)


if __name__ == "__main__":
    unittest.main()
