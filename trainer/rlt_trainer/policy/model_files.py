"""The files of a causal language model, and the types of its weights. The driver imports this module."""

from __future__ import annotations

from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from rlt_api.blocks.model import Model
from rlt_pod.download.hub_files import NO_ACCESS, SECRET
from rlt_trainer.data.seeded_model import write_seeded_model
from rlt_trainer.policy.config import build_model_error

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.py"]
"""The files of a model on the hub that are downloaded."""


def prepare_model_files(model: Model, scratch: Path) -> str:
    """Return the folder with the model's files. A model from a seed is written to the folder `scratch`; a model on the
    hub is downloaded at model.revision, so that trainer and engine use the same revision.

    Raises ValueError naming model.path if the model does not exist.
    """
    if model.from_seed is not None:
        write_seeded_model(model.from_seed, scratch)
        return str(scratch)
    assert model.path
    if Path(model.path).is_dir():
        return model.path
    try:
        return snapshot_download(model.path, revision=model.revision, allow_patterns=FILES)
    except HfHubHTTPError as error:
        if error.response.status_code not in NO_ACCESS:
            raise build_model_error(model.path, error) from error
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"model.path {model.path}: the hub gives no access to it ({reason}). {SECRET}") from error
    except (OSError, ValueError) as error:
        raise build_model_error(model.path, error) from error
