"""What a handler receives: ``AsyncJob`` in async handlers, ``Job`` in sync ones."""

from fencerow.job.job import AsyncJob, Job

__all__ = ["AsyncJob", "Job"]
