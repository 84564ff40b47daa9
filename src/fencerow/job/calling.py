"""Calls that an async handler makes: a sync function in a thread, and a write that a cancel does not cut short."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
THREAD = "fencerow-handler-step"
"""Begins as the names of handlers' threads do: a process that ends does not wait for either."""


async def called(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """What a function returns: awaited if it is async, else called in a thread of its own, which a cancel leaves behind."""
    if inspect.iscoroutinefunction(inspect.unwrap(function)):
        return await function(*args, **kwargs)
    value = await _in_thread(lambda: function(*args, **kwargs))
    # A partial or another wrapper around an async function.
    return await value if inspect.isawaitable(value) else value


async def _in_thread(call: Callable[[], Any]) -> Any:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        value, raised = None, None
        try:
            value = context.run(call)
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            raised = error
        try:
            loop.call_soon_threadsafe(tell, value, raised)
        except RuntimeError:
            pass  # the loop is closed and nobody waits

    def tell(value: Any, raised: BaseException | None) -> None:
        if not done.done():
            done.set_result((value, raised))

    # Not of a pool: a stuck function would take a place there for ever, and a fork would inherit a pool without threads.
    threading.Thread(target=work, name=THREAD, daemon=True).start()
    value, raised = await done
    if raised is not None:
        raise raised
    return value


async def finished(write: Coroutine[Any, Any, T]) -> T:
    """Await a write to its end even if this task is cancelled meanwhile; then the cancel goes on."""
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # read, so that nobody reports it as forgotten
        raise
