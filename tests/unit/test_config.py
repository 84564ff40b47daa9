"""Where to connect, and what is shown of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencerow import App
from fencerow.config import Location, check_dsn, embedded_name, locate, redact
from fencerow.errors import ConfigError

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:hunter2@h:5432/db", "postgresql://u:***@h:5432/db"),
        ("postgres://u:hun@ter2@h/db", "(unreadable DSN)"),
        (
            "postgresql://u@h/db?password=hunter2&sslmode=require",
            "postgresql://u@h/db?password=***&sslmode=require",
        ),
        ("postgresql:///db?host=/tmp/x&sslpassword=hunter2", "postgresql:///db?host=/tmp/x&sslpassword=***"),
        ("postgresql://u:hunter2/x@h/db", "(unreadable DSN)"),
        ("postgresql://u:12/hunter2@h/db", "postgresql://(unreadable DSN)"),
        ("host=h user=u password=hunter2", "host=h user=u password=***"),
        ("host = h password = 'hun\\'ter2 x' dbname=d", "host=h password=*** dbname=d"),
        ("host=h passfile=/x PASSWORD=hunter2", "host=h passfile=/x PASSWORD=***"),
        ("hunter2", "(unreadable DSN)"),
        ("password=hunter2 oops", "(unreadable DSN)"),
        ("embedded", "embedded"),
        ("embedded:shop", "embedded:shop"),
    ],
)
def test_redact_shows_no_password(dsn: str, shown: str) -> None:
    assert redact(dsn) == shown
    assert SECRET not in redact(dsn)


@given(
    st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=8, max_size=30).filter(
        lambda t: "*" not in t
    )
)
def test_redact_shows_no_quoted_password_whatever_it_is(password: str) -> None:
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")

    assert redact(f"host=/h password='{escaped}' user=u") == "host=/h password=*** user=u"


@pytest.mark.parametrize(
    "dsn",
    [
        *(
            "",
            "   ",
            "hunter2",
            "localhost:5432/hunter2",
            "mysql://u:hunter2@h/db",
            "postgresql://u:hunter2@h:port/db",
        ),
        *(
            "host=h password",
            "postgresql://[::1/db",
            "host=h\0",
            5,
            b"host=h",
            "embedded:",
            "embedded:../hunter2",
        ),
    ],
)
def test_check_dsn_refuses_in_one_line_without_repeating_it(dsn: object) -> None:
    """Bad input 22, the part that is seen without a connection."""
    with pytest.raises(ConfigError) as caught:
        check_dsn(dsn)

    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "dsn",
    [
        *(
            "postgresql://",
            "postgresql:///db?host=/tmp",
            "postgres://u:p@h1:1,h2:2/db",
            "postgresql://[::1]:5432/db",
        ),
        *(
            "host=/tmp",
            "host='a b' dbname = x ",
            "service=shop",
            "postgresql://%2Ftmp%2Fx/db",
            "embedded",
            "embedded:a-b_1",
        ),
    ],
)
def test_check_dsn_takes_what_libpq_takes(dsn: str) -> None:
    assert check_dsn(dsn) == dsn


def test_locate_prefers_what_was_given() -> None:
    environment = {"FENCEROW_DSN": "host=env"}

    assert locate("host=given", environ=environment) == Location("host=given", "--dsn")
    assert locate(environ=environment) == Location("host=env", "FENCEROW_DSN")
    assert locate(environ={}) is None
    assert (
        repr(Location("host=h password=hunter2", "--dsn")) == "Location('host=h password=*** (from --dsn)')"
    )


def test_embedded_name_of_each_kind_of_dsn() -> None:
    assert [embedded_name(dsn) for dsn in ("embedded", "embedded:shop", "host=embedded")] == [
        "default",
        "shop",
        None,
    ]


def test_an_app_without_a_database_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FENCEROW_DSN", raising=False)
    with pytest.raises(ConfigError, match="FENCEROW_DSN"):
        App()
    monkeypatch.setenv("FENCEROW_DSN", "host=/from/env password=hunter2")

    assert repr(App()) == "App('host=/from/env password=***', schema='fencerow')"
    with pytest.raises(ConfigError, match="not a DSN"):
        App("")


def test_an_app_can_be_moved_before_its_first_use() -> None:
    app = App("host=a")
    app.move("host=b", schema="other")

    assert (app.dsn, app.schema) == ("host=b", "other")
    app.store()
    with pytest.raises(Exception, match="in use"):
        app.move("host=c")
