"""What lies in a checkpoint, without reading it: names and shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from rlt_trainer.checkpoint.marker import DamagedCheckpointError

Shapes = dict[str, tuple[int, ...]]


def read_metadata(directory: Path) -> dict[str, Any]:
    """Name of each tensor or value that is saved -> what DCP knows of it. Raises DamagedCheckpointError."""
    try:
        metadata: Metadata = FileSystemReader(directory).read_metadata()
    except Exception as error:  # a pickle that is no longer one raises anything
        raise DamagedCheckpointError(f"its file .metadata cannot be read ({error!r})") from error
    return dict(metadata.state_dict_metadata)


def saved_shapes(saved: dict[str, Any], part: str) -> Shapes:
    """Name -> shape of a part's tensors."""
    tensors = {name: entry for name, entry in saved.items() if isinstance(entry, TensorStorageMetadata)}
    return {
        name.removeprefix(f"{part}."): tuple(entry.size)
        for name, entry in tensors.items()
        if name.startswith(f"{part}.")
    }


def differences(saved: Shapes, wanted: Shapes) -> list[str]:
    """What is not the same in two models, for people."""
    missing = [f"{name} is not in it" for name in wanted if name not in saved]
    unknown = [f"it has {name}, which is not in this model" for name in saved if name not in wanted]
    other = [
        f"{name} is {list(saved[name])} in it and {list(wanted[name])} in this model"
        for name in wanted
        if name in saved and saved[name] != wanted[name]
    ]
    return [*other, *missing, *unknown]
