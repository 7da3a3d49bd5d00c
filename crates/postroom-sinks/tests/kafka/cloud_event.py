"""Reads records as JSON on standard input, and says what the official SDK makes of each."""

import json
import sys

from cloudevents.core.bindings import kafka


def read(record):
    headers = {name: value.encode() for name, value in record["headers"]}
    message = kafka.KafkaMessage(headers=headers, key=record["key"], value=record["value"].encode())
    event = kafka.from_kafka_event(message)
    return {"attributes": event.get_attributes(), "data": event.get_data()}


print(json.dumps([read(record) for record in json.load(sys.stdin)], default=str))
