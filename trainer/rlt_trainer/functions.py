"""Modules of the user's own: the ConfigMaps that the operator mounts."""

from __future__ import annotations

import sys
from pathlib import Path

from rlt_api.training_config import FUNCTIONS_DIRECTORY


def make_importable(folder: Path = Path(FUNCTIONS_DIRECTORY)) -> None:
    """Let this process import the modules in each folder in `folder`, if there is one, after its own."""
    sys.path += [str(each) for each in sorted(folder.glob("*")) if each.is_dir() and str(each) not in sys.path]
