"""A server that closed an idle connection: nothing was sent, so nothing is uncertain."""

import pytest

from fencerow.ops import jobs
from fencerow.store.stores import AsyncStore, SyncStore
from fencerow.testing.space import Space
from fencerow.types import NewJob

OP = jobs.enqueue([NewJob("t", "{}")])


def _end_idle_sessions(space: Space) -> None:
    """End every session of the store, and wait until the server has none of them."""
    space.rows("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'idle'")


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_keyless_enqueue_on_a_connection_that_was_closed_meanwhile_goes_over_a_new_one(
    space: Space, kind: str
) -> None:
    """Once each; before, it was CommitUncertain although nothing had been sent."""
    target = type(space.target)(space.target.dsn, schema=space.target.schema, name="idle")
    sync, other = SyncStore(target), AsyncStore(target)
    for _ in range(2):
        made = sync.run(OP) if kind == "sync" else await other.run(OP)
        assert made[0].created
        _end_idle_sessions(space)

    assert space.value("SELECT count(*) FROM fencerow.job") == 2
    sync.close()
    await other.close()
