"""A worker as anybody would write one with `bullmq` from PyPI."""

import asyncio
import sys

from bullmq import UnrecoverableError, Worker


async def process(job, token):
    reason = job.data["payload"]["reason"]
    if job.name == "fail":
        raise RuntimeError(reason)
    if job.name == "never":
        raise UnrecoverableError(reason)
    return job.id


async def main():
    queue, port = sys.argv[1:]
    worker = Worker(queue, process, {"connection": f"redis://127.0.0.1:{port}"})
    print("ready", flush=True)
    await asyncio.Event().wait()
    await worker.close()


asyncio.run(main())
