"""What the benchmarks run."""

from fencerow import App

app = App()


@app.task(queue="bench")
async def noop(filler: str) -> None:
    """Nothing."""


@app.task(queue="bench")
def noop_thread(filler: str) -> None:
    """Nothing, in a thread."""
