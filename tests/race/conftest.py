"""Races are ordered by locks that sessions hold, so here the functions wait for them longer than a slow machine needs."""

from collections.abc import Iterator

import pytest

from fencerow.testing.space import Space

_CHANGE = """
DO $$ DECLARE f regprocedure; BEGIN
  FOR f IN SELECT p.oid FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
           WHERE n.nspname = 'fencerow' AND array_to_string(p.proconfig, ',') ~ 'lock_timeout' LOOP
    EXECUTE format('ALTER FUNCTION %s SET lock_timeout = %L', f, '{value}');
  END LOOP;
END $$
"""


@pytest.fixture
def patient(space: Space) -> Iterator[Space]:
    """The space, with lock_timeout 20 s instead of 1 s in its functions."""
    space.rows(_CHANGE.replace("{value}", "20s"))
    yield space
    space.release()
    space.rows(_CHANGE.replace("{value}", "1s"))
