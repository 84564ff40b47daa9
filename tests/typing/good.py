"""Read by type checkers, never run: calls that must be accepted, and the types that they have."""

from datetime import timedelta
from typing import assert_type

from fencerow import App, AsyncJob, Handle, Job, NewJob, Task, Unique

app = App("embedded")


@app.task
async def plain(user_id: int) -> str:
    return str(user_id)


@app.task
async def with_job(job: AsyncJob, user_id: int, *, name: str = "") -> str:
    return f"{job.id} {user_id} {name}"


@app.task
def in_thread(job: Job, path: str) -> bytes:
    return path.encode()


@app.task(queue="mail", timeout=timedelta(seconds=30), retry_on=(OSError,))
async def declared(job: AsyncJob, user_id: int) -> None: ...


@app.task(timeout=None, on_lost="fail", fail_on=ValueError, backoff=(1, 60))
def declared_in_thread(path: str) -> int:
    return len(path)


async def calls() -> None:
    anything: Task[..., str] = plain
    assert_type(anything.name, str)
    assert_type(await plain.aenqueue(7), Handle[str])
    assert_type(plain.enqueue(user_id=7), Handle[str])
    assert_type(await with_job.aenqueue(7, name="x"), Handle[str])
    assert_type(in_thread.enqueue("x"), Handle[bytes])
    assert_type(await declared.aenqueue(7), Handle[None])
    assert_type(declared_in_thread.enqueue(path="x"), Handle[int])
    assert_type(declared.bind(7), NewJob)
    later = with_job.using(run_in=timedelta(minutes=1), unique=Unique("k"), tags=["a"], headers={"a": "b"})
    assert_type(await later.aenqueue(7), Handle[str])
    assert_type(later.bind(7, name="x"), NewJob)
    handles = await app.aenqueue_many([plain.bind(1), in_thread.bind("x")])
    assert_type(handles[0].id, int)
    assert_type(await handles[0].acancel(reason="no"), str)


def receipt(cents: int, *, note: str = "") -> str:
    return f"{cents} {note}"


async def fetch(url: str) -> bytes:
    return url.encode()


@app.task
async def steps(job: AsyncJob) -> None:
    assert_type(await job.step("receipt", receipt, 5, note="x"), str)
    assert_type(await job.step("fetch", fetch, "https://example.org"), bytes)
    await job.enqueue_child(plain.bind(7))


@app.task
def steps_in_thread(job: Job) -> None:
    assert_type(job.step("receipt", receipt, 5), str)


async def results() -> None:
    handle = app.handle(5, plain)
    assert_type(handle, Handle[str])
    assert_type(handle.result(timeout=1), str)
    assert_type(await in_thread.enqueue("x").aresult(timeout=timedelta(seconds=1)), bytes)
    async with app.worker(queues={"mail": 3}) as worker:
        assert_type(worker.name, str)
