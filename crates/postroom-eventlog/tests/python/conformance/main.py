"""Proves what the official Python client can do with a server, one feature after the other.

    python main.py OPTIONS [FEATURE ...]

OPTIONS is JSON: the servers' addresses. Prints one line of JSON for each feature, and asks by a line
such as {"ask": "stop"} for what only the harness can do; any line that it reads is the answer.
"""

import json
import os
import sys
import traceback
from threading import Thread

import appending
import connection
import lifetime
import links
import persistent
import reading
import sharing
import subscriptions
from feature import FEATURES, Servers

# No single wait of a feature takes longer than `feature.LIMIT_SECONDS`; this is for all of them.
FEATURE_LIMIT_SECONDS = 60.0


def tell(line):
    print(json.dumps(line), flush=True)


def ask(what):
    tell({"ask": what})
    assert sys.stdin.readline(), "the harness is gone"


def prove(name, servers):
    outcome = {"feature": name, "ok": False, "error": f"no end in {FEATURE_LIMIT_SECONDS} s"}

    def run():
        try:
            FEATURES[name](servers)
        except BaseException as error:
            line = traceback.extract_tb(error.__traceback__)[1:] or [None]
            place = f"{os.path.basename(line[0].filename)}:{line[0].lineno}" if line[0] else ""
            outcome["error"] = f"{place}: {type(error).__name__}: {error}"
        else:
            outcome.update(ok=True, error=None)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(FEATURE_LIMIT_SECONDS)
    tell(dict(outcome))


def main():
    servers = Servers(json.loads(sys.argv[1]), ask)
    for name in sys.argv[2:] or list(FEATURES):
        prove(name, servers)
    tell({"end": True})
    # Subscriptions of features that failed may have threads that do not end.
    os._exit(0)


main()
