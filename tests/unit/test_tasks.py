"""A function as a task: its parameters, its policy, its name."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import pathlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from fencerow import App, AsyncJob, Job
from fencerow.errors import (
    ConfigError,
    DuplicateTask,
    FencerowError,
    InvalidName,
    InvalidPayload,
    InvalidValue,
    UsageError,
)
from fencerow.task import Task

SECRET = "hunter2"


class Color(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@pytest.fixture
def app() -> App:
    return App("host=/nowhere")


def taking(app: App, annotation: Any) -> Task[..., Any]:
    """A task with one parameter ``value`` of this type."""

    def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = annotation
    handler.__qualname__ = f"handler{len(app.tasks)}"
    return app.task(handler)


def test_arguments_are_bound_by_name_and_defaults_are_left_to_the_handler(app: App) -> None:
    @app.task
    def handler(a: int, /, b: int, c: int = 3, *, d: int = 4) -> None: ...

    assert handler.bind(1, 2).payload == '{"a":1,"b":2}'
    assert handler.bind(1, b=2, d=9).payload == '{"a":1,"b":2,"d":9}'
    assert handler.load('{"a":1,"b":2,"d":9}') == ([1], {"b": 2, "d": 9})

    @app.task
    def by_place(a: int = 1, b: int = 2, /) -> None: ...

    assert by_place.load('{"a":5}') == ([5], {})
    with pytest.raises(InvalidPayload, match="before it is missing"):
        by_place.load('{"b":5}')


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"z": SECRET}, "unexpected keyword argument 'z'"),
        ((1,), {"a": SECRET}, "multiple values for argument 'a'"),
    ],
    ids=["missing", "many", "unknown", "twice"],
)
def test_a_call_that_does_not_fit_is_refused(app: App, args: Any, kwargs: Any, told: str) -> None:
    @app.task
    def handler(a: int, b: int = 2) -> None: ...

    with pytest.raises(InvalidPayload, match=told) as caught:
        handler.bind(*args, **kwargs)
    assert SECRET not in str(caught.value)
    assert "It takes (a, b)." in str(caught.value)


def test_the_job_is_no_parameter_of_the_task(app: App) -> None:
    @app.task
    async def with_job(job: AsyncJob, n: int) -> int:
        return n

    @app.task
    def in_thread(job: Job, n: int) -> int:
        return n

    @app.task
    def without(n: int) -> int:
        return n + 1

    assert [(t.takes_job, t.is_async, t.executor) for t in (with_job, in_thread, without)] == [
        (True, True, "async"),
        (True, False, "thread"),
        (False, False, "thread"),
    ]
    assert with_job.bind(5).payload == '{"n":5}'
    assert without(1) == 2
    assert asyncio.run(with_job(None, 7)) == 7


def test_annotations_may_be_written_before_their_classes(app: App) -> None:
    """A name that does not exist at the decoration is looked up at the first use."""
    module = types.ModuleType("late")
    sys.modules["late"] = module
    try:
        exec(
            "from __future__ import annotations\n"
            "def handler(job: AsyncJob, value: Later) -> Unknown: ...\n"
            "def never(value: Nowhere): ...\n",
            module.__dict__,
        )
        with pytest.raises(ConfigError, match="sync takes Job, not AsyncJob"):
            app.task(module.handler)
        module.handler.__annotations__["job"] = "fencerow.Job"
        task: Task[..., Any] = app.task(module.handler)
        module.Later = Point  # type: ignore[attr-defined]

        assert task.load(task.bind(Point(1, 2)).payload)[1] == {"value": Point(1, 2)}
        with pytest.raises(ConfigError, match="'Nowhere', which does not exist"):
            app.task(module.never).bind(1)
    finally:
        del sys.modules["late"]


def unfit_handlers() -> Iterator[tuple[str, Callable[..., Any], str]]:
    async def job_elsewhere(n: int, job: AsyncJob) -> None: ...
    async def job_of_threads(job: Job) -> None: ...
    def job_of_loops(job: AsyncJob) -> None: ...
    def bare_job(job, n: int) -> None: ...  # type: ignore[no-untyped-def]
    def stars(*values: int) -> None: ...
    def double_stars(**values: int) -> None: ...
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> Any:
        yield 1

    def method(self: Any) -> None: ...
    def path(value: pathlib.Path) -> None: ...
    def callback(value: list[Callable[[], None]]) -> None: ...
    def ambiguous(value: Color | str) -> None: ...
    def nothing(value: enum.Nothing) -> None: ...  # type: ignore[name-defined]

    yield "job-elsewhere", job_elsewhere, "the job is not its first parameter"
    yield "job-of-threads", job_of_threads, "async takes AsyncJob, not Job"
    yield "job-of-loops", job_of_loops, "sync takes Job, not AsyncJob"
    yield "bare-job", bare_job, "called job and has no annotation"
    yield "stars", stars, r"\*values has no names"
    yield "double-stars", double_stars, r"\*\*values has no names"
    yield "generator", generator, "is a generator"
    yield "async-generator", async_generator, "is a generator"
    yield "method", method, "is a method"
    yield "path", path, "Path, which has no JSON form"
    yield "callback", callback, "Callable, which has no JSON form"
    yield "ambiguous", ambiguous, "cannot be read from JSON"
    yield "nothing", nothing, "an annotation means nothing"
    yield "class", Color, "was put on a EnumType"
    yield "object", 5, "was put on a int"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("handler", "told"), [pytest.param(f, told, id=name) for name, f, told in unfit_handlers()]
)
def test_a_handler_that_cannot_be_a_task_is_refused_at_once(
    app: App, handler: Callable[..., Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        app.task(handler)
    assert app.tasks == {}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"queue": ""}, InvalidName),
        ({"queue": "a b"}, InvalidName),
        ({"name": "x\n"}, InvalidName),
        ({"name": "x" * 201}, InvalidName),
        ({"priority": True}, InvalidValue),
        ({"priority": 40000}, InvalidValue),
        ({"max_attempts": 0}, InvalidValue),
        ({"max_attempts": 1001}, InvalidValue),
        ({"max_attempts": 1.0}, InvalidValue),
        ({"timeout": 0}, InvalidValue),
        ({"timeout": -1}, InvalidValue),
        ({"timeout": True}, InvalidValue),
        ({"timeout": 1e308}, InvalidValue),
        ({"timeout": float("nan")}, InvalidValue),
        ({"timeout": "30"}, InvalidValue),
        ({"on_lost": "hold"}, InvalidValue),
        ({"backoff": 5}, InvalidValue),
        ({"backoff": (0, 10)}, InvalidValue),
        ({"backoff": (20, 10)}, InvalidValue),
        ({"backoff": (1, 1e9)}, InvalidValue),
        ({"keep": -1}, InvalidValue),
        ({"keep_failed": dt.timedelta(days=4000)}, InvalidValue),
        ({"retry_on": (KeyboardInterrupt,)}, InvalidValue),
        ({"fail_on": ("ValueError",)}, InvalidValue),
        ({"fail_on": (ValueError,), "retry_on": (ValueError,)}, ConfigError),
        ({"memory": 1 << 30}, ConfigError),
        ({"executor": "process", "memory": 1}, InvalidValue),
        ({"executor": "async"}, ConfigError),
        ({"executor": "gpu"}, InvalidValue),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_a_policy_out_of_bounds_is_refused(app: App, options: Any, kind: type[FencerowError]) -> None:
    """C121 and bad inputs 10, 12, 17 where a task is declared."""
    with pytest.raises(kind) as caught:
        app.task(**options)(lambda: None)
    assert app.tasks == {}
    assert caught.value.hint


def test_an_option_that_does_not_exist_is_refused(app: App) -> None:
    with pytest.raises(TypeError, match="order_key"):
        app.task(order_key="x")(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="limit_key"):
        taking(app, int).using(limit_key="x")  # type: ignore[call-arg]


def test_a_policy_holds_seconds(app: App) -> None:
    @app.task(
        queue="mail",
        timeout=dt.timedelta(minutes=1),
        backoff=(1, dt.timedelta(hours=1)),
        keep=0,
        on_lost="fail",
        fail_on=ValueError,
    )
    def handler() -> None: ...

    @app.task(timeout=None, max_attempts=1)
    def endless() -> None: ...

    policy = handler.policy
    assert (policy.timeout, policy.backoff_base, policy.backoff_cap, policy.keep) == (60.0, 1.0, 3600.0, 0.0)
    assert (policy.queue, policy.careful, handler.fail_on) == ("mail", True, (ValueError,))
    assert (endless.policy.timeout, endless.policy.careful) == (None, True)


def test_a_name_is_claimed_once(app: App) -> None:
    @app.task(name="mail.send")
    def first() -> None: ...

    with pytest.raises(DuplicateTask, match=r"mail\.send"):
        app.task(name="mail.send")(lambda: None)
    assert app.tasks == {"mail.send": first}


def test_a_task_is_named_for_module_and_function(app: App) -> None:
    task = app.task(unfit_handlers_module_function)

    assert task.name == f"{__name__}.unfit_handlers_module_function"


def unfit_handlers_module_function() -> None: ...


def test_a_result_is_written_loosely(app: App) -> None:
    task = taking(app, int)

    assert task.encode_result((1, dt.date(2026, 1, 2))) == '[1,"2026-01-02"]'
    assert task.encode_result(None) == "null"
    coroutine = with_nothing()
    with pytest.raises(InvalidPayload, match="type coroutine"):
        task.encode_result(coroutine)
    coroutine.close()


async def with_nothing() -> None: ...


def test_bind_carries_the_task_s_own_queue_and_priority_unless_given_others() -> None:
    """A job goes to its task's queue even where no worker has declared the task yet."""
    app = App("postgresql:///unused")

    @app.task(name="t", queue="mail", priority=7)
    def task() -> None: ...

    own, other = task.bind(), task.using(queue="slow", priority=9).bind()

    assert (own.queue, own.priority, other.queue, other.priority) == ("mail", 7, "slow", 9)
