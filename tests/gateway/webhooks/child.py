"""A process to be killed: accepts numbered messages and delivers them, telling each step.

    python -m tests.gateway.webhooks.child FOLDER FIRST_NUMBER

Lines on stdout, each written at once: `accepted N` when accept has returned, `batch ID N N …` when
a batch is announced and `settled ID` when settle has returned.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from jsonbus.gateway.webhooks.ledger import Batch, WebhookLedger
from tests.gateway.webhooks.ledgers import URL, messages_of

PUBLISHERS = 4
SUBSCRIBERS = ("anna", "ben")


def tell(*words: object) -> None:
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


async def main(folder: Path, first_number: int) -> None:
    ledger = WebhookLedger(folder)
    deliveries = set()

    async def deliver(batch: Batch) -> None:
        await ledger.settle(batch)
        tell("settled", batch.delivery_id)

    def on_batch(batch: Batch) -> None:
        tell("batch", batch.delivery_id, *messages_of(batch))
        task = asyncio.create_task(deliver(batch))
        deliveries.add(task)
        task.add_done_callback(deliveries.discard)

    async def publish(number: int) -> None:
        for each in itertools.count(number, PUBLISHERS):
            assert await ledger.accept("numbers", b"%d" % each) == len(SUBSCRIBERS)
            tell("accepted", each)

    await ledger.open(on_batch)
    for name in SUBSCRIBERS:
        await ledger.subscribe(name, "numbers", URL)
    await asyncio.gather(*(publish(first_number + offset) for offset in range(PUBLISHERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
