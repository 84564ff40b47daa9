"""Waiting for work that may take only so long."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first(
    work: Coroutine[Any, Any, Any], seconds: float, *, unless: Coroutine[Any, Any, Any] | None = None
) -> None:
    """Do *work* until it ends, *seconds* are over or *unless* ends; what has not ended by then is cancelled."""
    tasks = [asyncio.ensure_future(each) for each in (work, unless) if each is not None]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
