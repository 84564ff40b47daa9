"""
A clock that tests move, for one space: its function now() is replaced until the test ends.

Every decision about ownership reads that function, so moving it moves leases, due times and retention at once, for
all processes that use the space. Waiting for real time is never needed.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from fencerow.sql import routines
from fencerow.testing.space import Space

_INSTALL = """
CREATE TABLE fencerow.test_clock (stopped_at timestamptz, ahead interval NOT NULL DEFAULT '0 s');
INSERT INTO fencerow.test_clock DEFAULT VALUES;
CREATE OR REPLACE FUNCTION fencerow.now() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $body$ SELECT coalesce(c.stopped_at, clock_timestamp()) + c.ahead FROM fencerow.test_clock AS c $body$;
"""


class Clock:
    """The movable clock of a space. It runs on by itself until it is stopped."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def install(self) -> None:
        """Put the movable clock in place of the real one."""
        self._space.connection.execute(self._space.sql(_INSTALL).encode())

    def restore(self) -> None:
        """Put the real one back, after ending what the test opened: an open transaction may hold the other."""
        real = next(text for name, text in routines() if name == "rules/now")
        self._space.release()
        self._space.force(self._space.sql(real + "\nDROP TABLE IF EXISTS fencerow.test_clock").encode())

    @property
    def now(self) -> datetime:
        """What the space reads at this moment."""
        moment: datetime = self._space.value("SELECT fencerow.now()")
        return moment

    def advance(self, seconds: float) -> None:
        """Move by *seconds*, back if negative; committed at once, so that all sessions see it."""
        self._space.rows("UPDATE fencerow.test_clock SET ahead = ahead + %s", (timedelta(seconds=seconds),))

    def stop(self) -> datetime:
        """Stop it, so that it moves by advance() alone; the moment it shows."""
        self._space.rows(
            "UPDATE fencerow.test_clock SET stopped_at = coalesce(stopped_at, clock_timestamp())"
        )
        return self.now

    def go(self) -> None:
        """Let it run on, from real time plus what it was moved by."""
        self._space.rows("UPDATE fencerow.test_clock SET stopped_at = NULL")
