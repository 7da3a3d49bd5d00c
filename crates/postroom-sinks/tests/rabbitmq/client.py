"""An independent client: makes what a test needs, and reads queues without emptying them."""

import json
import sys

import pika


def exchange(channel, name):
    channel.exchange_declare(name, exchange_type="topic", durable=True)


def by_headers(channel, name, queue, binding):
    channel.exchange_declare(name, exchange_type="headers", durable=True)
    channel.queue_bind(queue, name, "", json.loads(binding))


def declare(channel, name, queue, binding, arguments):
    exchange(channel, name)
    channel.queue_declare(queue, durable=True, arguments=json.loads(arguments))
    channel.queue_bind(queue, name, binding)


def read(channel, queue):
    while True:
        method, properties, body = channel.basic_get(queue)
        if method is None:
            return
        headers = {name: str(value) for name, value in (properties.headers or {}).items()}
        own = {
            "content_type": properties.content_type,
            "correlation_id": properties.correlation_id,
            "delivery_mode": str(properties.delivery_mode),
            "type": properties.type,
        }
        print(json.dumps({
            "key": properties.message_id,
            "routing_key": method.routing_key,
            "body": body.decode(),
            "headers": headers | {f"property:{name}": value for name, value in own.items()},
        }))


port, command, *arguments = sys.argv[1:]
# What is not acknowledged goes back to its place when the connection closes.
connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(port)))
commands = {"exchange": exchange, "by_headers": by_headers, "declare": declare, "read": read}
commands[command](connection.channel(), *arguments)
connection.close()
