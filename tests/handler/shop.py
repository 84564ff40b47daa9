"""An app for workers that are killed: what its handlers did stands in a file."""

import os
import signal
from pathlib import Path

from fencerow import App, Job

app = App(os.environ.get("FENCEROW_DSN", "postgresql:///unused"))


def effect(text: str) -> None:
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(f"{text}\n")


def charge(amount: int) -> str:
    effect(f"charge {amount}")
    return f"receipt for {amount}"


@app.task(name="child", queue="apart")
def child(receipt: str) -> None: ...


@app.task(name="order")
def order(job: Job, amount: int) -> str:
    receipt = job.step("charge", charge, amount)
    job.enqueue_child(child.bind(receipt))
    effect(f"attempt {job.attempt} with {receipt}")
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return receipt


@app.task(name="apart", executor="process")
def apart(job: Job, amount: int) -> list[str | int]:
    receipt = job.step("charge", charge, amount)
    handle = job.enqueue_child(child.bind(receipt))
    return [receipt, handle.id]
