"""The App: where jobs go, and the tasks they may name."""

from fencerow.app.app import App

__all__ = ["App"]
