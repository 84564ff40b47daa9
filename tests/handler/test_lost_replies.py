"""A reply is lost after the server has done the work: steps, children and the user's own COMMIT (I11)."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fencerow import App, Job
from fencerow.server import Cluster
from fencerow.testing import assert_enqueued, drain
from fencerow.testing.proxy import Proxy
from fencerow.testing.space import Space


@pytest.fixture
def proxy(fencerow_cluster: Cluster, space: Space) -> Iterator[Proxy]:
    with Proxy(fencerow_cluster.sockets) as made:
        yield made


@pytest.fixture
def behind(proxy: Proxy) -> Iterator[App]:
    with App(proxy.dsn("fencerow", "fencerow")) as app:
        yield app


@pytest.mark.parametrize("lose", ["request", "reply"])
def test_a_step_is_kept_once_and_its_function_called_once(
    proxy: Proxy, behind: App, space: Space, lose: Any
) -> None:
    calls: list[int] = []

    def one() -> int:
        calls.append(1)
        return 7

    @behind.task
    def work(job: Job) -> int:
        return job.step("one", one)

    cut = proxy.lose(r"\.keep_step\(", lose)
    handle = work.enqueue()
    drained = drain(behind)

    assert cut.done.is_set()
    assert (drained.done, drained.runs, calls) == ((handle.id,), 1, [1])
    assert space.rows("SELECT name, result FROM fencerow.step") == [("one", "7")]
    assert space.rows("SELECT op FROM fencerow.refusal") == []


@pytest.mark.parametrize("lose", ["request", "reply"])
def test_a_child_is_enqueued_once(proxy: Proxy, behind: App, lose: Any) -> None:
    @behind.task(queue="apart")
    def child() -> None: ...

    @behind.task
    def parent(job: Job) -> int:
        return job.enqueue_child(child.bind()).id

    cut = proxy.lose(r"\.enqueue_child\(", lose)
    handle = parent.enqueue()
    drained = drain(behind, queues=["default"])

    assert cut.done.is_set()
    assert (drained.done, drained.runs) == ((handle.id,), 1)
    (only,) = assert_enqueued(behind, child, parent=handle.id)
    assert handle.result(timeout=0) == only.id


@pytest.mark.parametrize(("lose", "runs"), [("reply", 1), ("request", 2)])
def test_a_users_commit_that_was_not_answered_is_learnt(
    proxy: Proxy, app: App, space: Space, lose: Any, runs: int
) -> None:
    """The worker itself is not behind the proxy: only the user's connection loses its reply."""
    space.connection.execute("CREATE TABLE IF NOT EXISTS ledger (job bigint)")
    dsn = proxy.dsn("fencerow", "fencerow")

    @app.task(backoff=(0.001, 0.001))
    def book(job: Job) -> None:
        with psycopg.connect(dsn) as connection, connection.transaction(), job.commit(connection) as tx:
            tx.execute("INSERT INTO ledger VALUES (%s)", (job.id,))

    cut = proxy.lose("^COMMIT", lose)
    handle = book.enqueue()
    drained = drain(app)
    rows = space.connection.execute("SELECT job FROM ledger").fetchall()
    space.connection.execute("DROP TABLE ledger")

    assert cut.done.is_set()
    assert drained.runs == runs
    assert drained.done == (handle.id,)
    assert rows == [(handle.id,)]
    assert space.rows("SELECT op, verdict FROM fencerow.refusal") == []
