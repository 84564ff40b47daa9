"""Logging: a library logger that configures nothing, and the two formats that the command line may switch on."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from fencerow.types import Claim

logger = logging.getLogger("fencerow")
"""Everything Fencerow says; lines about a job carry ``job`` and ``generation`` as fields and in the text."""

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x09}
_ESCAPES |= {
    code: f"\\u{code:04x}" for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def printable(text: str) -> str:
    """Text with control and direction characters shown, not obeyed: one event stays one line."""
    return text.translate(_ESCAPES)


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """The logger of one attempt: ``job.log`` in a handler, and Fencerow's own lines about it."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(logger, {"job": claim.job_id, "generation": claim.generation, "task": claim.task})
        self._prefix = f"job={claim.job_id} generation={claim.generation} task={claim.task} "

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Put job and generation before the message and into the record."""
        if self.isEnabledFor(level):
            kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
            # A task's name may hold a percent sign, which a message with arguments would take for a place to fill.
            prefix = self._prefix.replace("%", "%%") if args else self._prefix
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            text = f"{prefix}{msg}"
            self.logger.log(level, text, *args, **kwargs)


class LineFormatter(logging.Formatter):
    """``2026-11-30T12:00:00.123Z INFO text``, one line an event; a traceback follows escaped lines of its own."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        """ISO 8601 in UTC with milliseconds."""
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        text = f"{self.formatTime(record)} {record.levelname} {printable(record.getMessage())}"
        if record.exc_info:
            text += "\n" + "\n".join(
                "  " + printable(line) for line in self.formatException(record.exc_info).split("\n")
            )
        return text


class JsonFormatter(LineFormatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "at": self.formatTime(record),
            "level": record.levelname,
            "message": record.getMessage(),
        }
        for name in ("job", "generation", "task", "worker"):
            if hasattr(record, name):
                line[name] = getattr(record, name)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def configure(level: str, *, as_json: bool) -> None:
    """Write the log to standard error; for the command line only."""
    stream = logging.StreamHandler()
    stream.setFormatter(JsonFormatter() if as_json else LineFormatter())
    logger.handlers[:] = [stream]
    logger.setLevel(level.upper())
    logger.propagate = False
