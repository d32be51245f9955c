"""The contents of a checkpoint, names and shapes, without loading tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from rlt_trainer.checkpoint.marker import DamagedCheckpointError

Shapes = dict[str, tuple[int, ...]]


def read_metadata(directory: Path) -> dict[str, Any]:
    """Read DCP's metadata by name of the saved tensor or value. Raises DamagedCheckpointError."""
    try:
        metadata: Metadata = FileSystemReader(directory).read_metadata()
    except Exception as error:  # a damaged pickle may raise any exception
        raise DamagedCheckpointError(f"its file .metadata cannot be read ({error!r})") from error
    return dict(metadata.state_dict_metadata)


def select_shapes(saved: dict[str, Any], part: str) -> Shapes:
    """Return the shapes of a part's tensors by name."""
    tensors = {name: entry for name, entry in saved.items() if isinstance(entry, TensorStorageMetadata)}
    return {
        name.removeprefix(f"{part}."): tuple(entry.size)
        for name, entry in tensors.items()
        if name.startswith(f"{part}.")
    }


def describe_differences(saved: Shapes, wanted: Shapes) -> list[str]:
    """Describe the differences between two models, for an error message."""
    missing = [f"{name} is missing" for name in wanted if name not in saved]
    unknown = [f"{name} is not in this model" for name in saved if name not in wanted]
    other = [
        f"{name} is {list(saved[name])} in the checkpoint and {list(wanted[name])} in this model"
        for name in wanted
        if name in saved and saved[name] != wanted[name]
    ]
    return [*other, *missing, *unknown]
