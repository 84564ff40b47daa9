"""The back-off of losses, in SQL, is the back-off of outcomes, in Python: one formula, held together here."""

import pytest

from fencerow import policy
from fencerow.testing.space import Space


@pytest.mark.parametrize("attempt", [0, 1, 2, 10, 50, 100, 1000, 2000, 32767, 2**31 - 1])
@pytest.mark.parametrize(
    ("base", "cap"), [(2.0, 3600.0), (0.001, 0.001), (0.001, 86400.0 * 30), (86400.0, 60.0)]
)
def test_back_off_is_one_formula_in_sql_and_python(
    space: Space, attempt: int, base: float, cap: float
) -> None:
    """C097: capped, finite, rising with the attempt, never under its base unless the cap is."""
    for fraction in (0.0, 0.25, 0.5, 1.0, -3.0, 7.0):
        sql = space.value(
            "SELECT extract(epoch FROM fencerow.backoff(%s, make_interval(secs => %s), make_interval(secs => %s), %s))::float8",
            (attempt, base, cap, fraction),
        )
        assert sql == pytest.approx(policy.backoff(attempt, base=base, cap=cap, fraction=fraction), abs=2e-6)
        assert min(base, cap) - 1e-6 <= sql <= cap + 1e-6


def test_back_off_spreads(space: Space) -> None:
    """C122: a thousand jobs that fail together come back over at least a quarter of the delay."""
    low, high, distinct = space.rows(
        "SELECT min(d), max(d), count(DISTINCT d) "
        "FROM (SELECT fencerow.backoff(5, '2 s', '1 h') AS d FROM generate_series(1, 1000)) AS x"
    )[0]
    assert distinct > 900
    assert (high - low).total_seconds() > 64 / 4
