"""What `import fencerow` gives, and that it gives it late."""

import subprocess
import sys

import pytest

import fencerow


def test_every_public_name_exists() -> None:
    for name in fencerow.__all__:
        assert getattr(fencerow, name) is not None
        assert name in dir(fencerow)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        fencerow.Nothing  # noqa: B018


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import fencerow", {"psycopg", "typer", "rich", "msgspec", "asyncio", "pydantic"}),
        (
            "from fencerow import App, AsyncJob, Job; App('host=/x').task(name='t')(lambda: 1)",
            {"psycopg", "pydantic"},
        ),
    ],
    ids=["package", "app"],
)
def test_imports_stay_light(statement: str, absent: set[str]) -> None:
    """The driver costs more than 100 ms: it waits for the first connection."""
    program = f"{statement}; import sys; sys.exit(' '.join({absent!r} & set(sys.modules)) or None)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_task_of_a_program_has_the_name_under_which_a_worker_imports_it(tmp_path: object) -> None:
    """`python shop.py` and a worker that imports `shop` mean the same task; so does `python -m`."""
    folder = str(tmp_path)
    with open(f"{folder}/shop.py", "w") as file:
        file.write(
            "from fencerow import App\napp = App('host=/x')\n@app.task\ndef send(): ...\n"
            "if __name__ == '__main__':\n    import shop\n    print(send.name, shop.send.name)\n"
        )
    for command in (["shop.py"], ["-m", "shop"]):
        answer = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True)
        assert (answer.stdout, answer.stderr) == ("shop.send shop.send\n", "")

    typed_in = "from fencerow import App\n@App('host=/x').task\ndef send(): ...\n"
    answer = subprocess.run([sys.executable, "-"], input=typed_in, capture_output=True, text=True)
    assert 'Give @app.task(name="…").' in answer.stderr
