"""Reads cases as JSON on standard input, and says what Python's libraries make of each."""

import base64
import datetime
import json
import sys

import standardwebhooks.webhooks
from cloudevents.core.bindings import amqp, http
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def shared(case):
    """v1, by the official library, as if `later` seconds had passed."""

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            passed = datetime.timedelta(seconds=case.get("later", 0))
            return datetime.datetime.now(tz) + passed

    standardwebhooks.webhooks.datetime = Later
    return standardwebhooks.webhooks.Webhook(case["secret"]).verify(case["body"], case["headers"])


def public(case):
    """v1a, by the library `cryptography`."""
    headers = case["headers"]
    content = ".".join([headers["webhook-id"], headers["webhook-timestamp"], case["body"]])
    signatures = headers["webhook-signature"].split(" ")
    [signature] = [text[4:] for text in signatures if text.startswith("v1a,")]
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(case["key"]))
    key.verify(base64.b64decode(signature), content.encode())
    return True


def cloud_event(case):
    """A CloudEvent in whichever mode the headers say, by the official SDK."""
    message = http.HTTPMessage(headers=case["headers"], body=case["body"].encode())
    event = http.from_http_event(message)
    return {"attributes": event.get_attributes(), "data": event.get_data()}


def amqp_event(case):
    """The same by the binding for AMQP."""
    message = amqp.AMQPMessage(
        properties={"content-type": case["content_type"]},
        application_properties=case["headers"],
        application_data=case["body"].encode(),
    )
    event = amqp.from_amqp_event(message)
    return {"attributes": event.get_attributes(), "data": event.get_data()}


KINDS = {"shared": shared, "public": public, "cloud": cloud_event, "amqp": amqp_event}


def verify(case):
    try:
        return {"ok": KINDS[case["kind"]](case)}
    except Exception as error:  # whatever it is, it is the verdict
        return {"error": f"{type(error).__name__}: {error}"}


print(json.dumps([verify(case) for case in json.load(sys.stdin)], default=str))
