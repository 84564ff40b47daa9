"""Tasks: a function, its policy, and how a call of it becomes a job."""

from fencerow.task.task import Calls, Enqueuer, Task, TaskDecorator

__all__ = ["Calls", "Enqueuer", "Task", "TaskDecorator"]
