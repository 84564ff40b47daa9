"""Introducing a worker process to its space, before it claims anything: does the schema fit, what are the tasks, who is it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from fencerow import __version__
from fencerow.app import App
from fencerow.ops import workers
from fencerow.store import migrate
from fencerow.store.stores import AsyncStore
from fencerow.worker.keep import Keeper


async def introduce(
    app: App, store: AsyncStore, keeper: Keeper, *, name: str, queues: Sequence[str], slots: int
) -> str:
    """
    Check the schema, declare the tasks, register, open a lease; the identity of the space. May be done again.

    Raises:
        SchemaError: client and schema do not fit.  StoreError: the database refused or is away.
    """
    migrate.check_contract(*await store.run(migrate.contract()))
    for task in app.tasks.values():
        await store.run(workers.declare_task(task.policy))
    await store.run(
        workers.register(
            name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            queues=queues,
            tasks=list(app.tasks),
            slots=slots,
        )
    )
    await keeper.current()
    return await store.run(workers.space_id())
