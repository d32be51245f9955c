"""The Python client of rlt: `from rlt import Job, Client`. Importing it loads no other package."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlt.client import Client
    from rlt.job import Job

__all__ = ["Client", "Job"]


def __getattr__(name: str) -> object:
    """Import a class on its first use."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module rlt has no attribute {name}: use one of {', '.join(__all__)}.")
    return getattr(import_module(f"rlt.{name.lower()}"), name)
