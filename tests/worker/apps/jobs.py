"""Tasks for workers that run as processes. What they do is one line each in a file; what they wait for is a file."""

import asyncio
import ctypes
import os
import re
import signal
import threading
from pathlib import Path

from fencerow import App, AsyncJob, Job

app = App()
place = Path(os.environ["PLACE"])
_tick = threading.Event()


def note(job: AsyncJob | Job, what: str) -> None:
    """One effect: job, generation, attempt, process, what."""
    line = f"{job.id} {job.generation} {job.attempt} {os.getpid()} {what}\n"
    file = os.open(place / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def opened(gate: str) -> bool:
    return (place / f"gate-{gate}").exists()


@app.task(name="quick", backoff=(0.01, 0.05))
async def quick(job: AsyncJob) -> int:
    note(job, "done")
    return job.id


@app.task(name="wait", backoff=(0.01, 0.05))
async def wait(job: AsyncJob, gate: str) -> None:
    note(job, "begun")
    while not opened(gate):
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        except TimeoutError:
            pass
    job.check()
    note(job, "done")


@app.task(name="wait.thread", backoff=(0.01, 0.05))
def wait_thread(job: Job, gate: str) -> None:
    note(job, "begun")
    while not opened(gate):
        _tick.wait(0.01)
    job.check()
    note(job, "done")


@app.task(name="wait.careless", backoff=(0.01, 0.05))
def wait_careless(job: Job, gate: str) -> None:
    """Never asks whether it may go on."""
    note(job, "begun")
    while not opened(gate):
        _tick.wait(0.01)
    note(job, "done")


@app.task(name="once", on_lost="fail")
async def once(job: AsyncJob, gate: str) -> None:
    await wait.function(job, gate)


@app.task(name="last", max_attempts=1)
async def last(job: AsyncJob, gate: str) -> None:
    await wait.function(job, gate)


@app.task(name="poison", max_attempts=3, backoff=(0.01, 0.05))
def poison(job: Job) -> None:
    note(job, "dies")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="hog")
async def hog(job: AsyncJob, seconds: int) -> None:
    """C code that keeps the interpreter lock for so long, on the event loop: a PyDLL call does not let it go."""
    note(job, "begun")
    ctypes.PyDLL(None).sleep(seconds)
    job.check()
    note(job, "done")


@app.task(name="hang", timeout=1)
async def hang(job: AsyncJob, gate: str) -> None:
    """Blocks the event loop, past its timeout and grace if nobody opens the gate."""
    note(job, "begun")
    while not opened(gate):
        _tick.wait(0.01)
    note(job, "done")


@app.task(name="fails")
async def fails(job: AsyncJob, gate: str) -> None:
    note(job, "begun")
    while not opened(gate):
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        except TimeoutError:
            pass
    raise ValueError("by itself")


@app.task(name="stuck")
async def stuck(job: AsyncJob) -> None:
    """A thread of the loop's own pool that never comes back."""
    note(job, "begun")
    await asyncio.to_thread(threading.Event().wait)


@app.task(name="process.value", executor="process")
def process_value(job: Job, value: list[int]) -> list[int]:
    note(job, f"group {os.getpgid(0)}")
    return value


@app.task(name="process.async", executor="process")
async def process_async(job: AsyncJob) -> int:
    await job.progress(0.5, "half")
    note(job, "done")
    return job.id


@app.task(name="process.dies", executor="process", max_attempts=2, backoff=(0.01, 0.05))
def process_dies(job: Job, how: str) -> None:
    note(job, "begun")
    if how == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    os._exit(7)


@app.task(name="process.hangs", executor="process", timeout=1, max_attempts=1)
def process_hangs(job: Job) -> None:
    child = os.fork()
    if child == 0:
        os.execvp("sleep", ["sleep", "600"])
    note(job, f"grandchild {child}")
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.task(name="process.waits", executor="process", backoff=(0.01, 0.05))
def process_waits(job: Job, gate: str) -> None:
    note(job, "begun")
    while not opened(gate):
        _tick.wait(0.01)
    note(job, "done")


@app.task(name="process.hungry", executor="process", memory=1 << 30, max_attempts=1)
def process_hungry(job: Job) -> None:
    note(job, "begun")
    bytearray(2 << 30)


@app.task(name="process.commit", executor="process")
def process_commit(job: Job) -> None:
    with job.commit() as tx:
        tx.execute("CREATE TABLE IF NOT EXISTS public.committed (job bigint)")
        tx.execute("INSERT INTO public.committed VALUES (%s)", (job.id,))
        tx.result = "ok"
