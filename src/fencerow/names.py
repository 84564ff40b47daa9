"""The rules for names and keys, checked before anything is sent. No message repeats what it refuses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fencerow import limits
from fencerow.errors import InvalidName

_QUEUE = re.compile(r"[\w./@-]+")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_queue(name: object) -> str:
    """
    A queue's name: 1..63 letters, digits or ``_ - . / @``. No space, quote, colon or comma, so that
    ``mail:10,default:4`` can be read in one way only.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= limits.QUEUE_NAME_MAX or not _QUEUE.fullmatch(name):
        raise InvalidName(
            f"this cannot be a queue's name: {_fault(name, limits.QUEUE_NAME_MAX)}",
            hint=f"Use 1 to {limits.QUEUE_NAME_MAX} letters, digits or any of _ - . / @",
        )
    return name


def check_task(name: object) -> str:
    """A task's name: 1..200 printable characters, no space at its ends."""
    return _check(name, "a task's name", limits.TASK_NAME_MAX)


def check_key(key: object, what: str = "an idempotency key") -> str:
    """An idempotency key or unique key: 1..200 printable characters, no space at its ends."""
    return _check(key, what, limits.KEY_CHARACTERS_MAX)


def check_tags(tags: object) -> Sequence[str]:
    """At most 20 tags, each 1..100 printable characters."""
    if isinstance(tags, str | bytes) or not isinstance(tags, Sequence):
        raise InvalidName(f"tags are a list of strings, not {type(tags).__name__}", hint='Give ["a", "b"].')
    if len(tags) > limits.TAGS_MAX:
        raise InvalidName(f"{len(tags)} tags were given", hint=f"At most {limits.TAGS_MAX} are possible.")
    return [_check(tag, "a tag", limits.TAG_CHARACTERS_MAX) for tag in tags]


def _check(name: object, what: str, longest: int) -> str:
    if (
        not isinstance(name, str)
        or not 1 <= len(name) <= longest
        or _UNPRINTABLE.search(name)
        or name != name.strip()
    ):
        raise InvalidName(
            f"this cannot be {what}: {_fault(name, longest)}",
            hint=f"Use 1 to {longest} printable characters without a space at either end.",
        )
    return str(name)


def _fault(name: object, longest: int) -> str:
    if not isinstance(name, str):
        return f"it is of type {type(name).__name__}"
    if not name:
        return "it is empty"
    if len(name) > longest:
        return f"it has {len(name)} characters"
    found = _UNPRINTABLE.search(name)
    if found:
        return f"U+{ord(found[0]):04X} at position {found.start()}"
    if name != name.strip():
        return "it begins or ends with a space"
    return "it has a character that is not allowed"
