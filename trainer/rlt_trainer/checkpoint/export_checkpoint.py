"""Export of a checkpoint to the Hugging Face format, in one process, without Ray or accelerators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.device_mesh import init_device_mesh
from transformers import PreTrainedModel

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.checkpoint.contents import select_shapes
from rlt_trainer.checkpoint.export import MAX_SHARD_BYTES, Weights, export, replace_directory, split_shards, write_model
from rlt_trainer.checkpoint.marker import COMPLETE, DamagedCheckpointError, list_marked
from rlt_trainer.checkpoint.parts import ModelState
from rlt_trainer.checkpoint.resume import check_part, check_shapes, load_parts, open_checkpoint
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.policy.config import load_config_from
from rlt_trainer.policy.families import find_auto_class
from rlt_trainer.policy.model_files import DTYPES, prepare_model_files
from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model


def export_checkpoint(
    checkpoint: Path, output: Path, config: TrainingConfig, *, max_shard_bytes: int = MAX_SHARD_BYTES
) -> None:
    """Write the policy in the folder `checkpoint` to `output`.

    Memory: the weights of two files; with LoRA, the base model.
    Raises ValueError if the checkpoint is damaged or of a different model than config.model, TrainingError if `output`
    cannot be written.
    """
    if not (checkpoint / COMPLETE).is_file():
        complete = ", ".join(each.name for each in list_marked(checkpoint.parent))
        raise ValueError(
            f"--checkpoint {checkpoint}: not a complete checkpoint, its file {COMPLETE} is missing: it was not saved, "
            "or checkpoint.maxToKeep has deleted it. "
            + (f"Use one of {complete} (`rlt export NAME --step N`)." if complete else "Its folder has no other one.")
        )
    write = _export_full if config.model.lora is None else _export_with_adapter
    try:
        with (
            single_rank_group(),
            TemporaryDirectory(prefix="rlt-model-") as scratch,
            open_checkpoint(checkpoint) as content,
        ):
            files = prepare_model_files(config.model, Path(scratch))
            write(content.files, output, config, files=files, saved=content.saved, max_shard_bytes=max_shard_bytes)
    except DamagedCheckpointError as error:
        raise ValueError(f"--checkpoint {checkpoint} is damaged: {error}. Use an earlier one.") from error


def _export_full(
    checkpoint: Path,
    output: Path,
    config: TrainingConfig,
    *,
    files: str,
    saved: dict[str, Any],
    max_shard_bytes: int,
) -> None:
    model = _build_architecture(config, files)
    weights = _stream_weights(checkpoint, saved, model, max_shard_bytes)
    dtype = DTYPES[config.model.dtype]
    with replace_directory(output) as partial:
        write_model(weights, model, load_tokenizer(config.model), partial, dtype, max_shard_bytes=max_shard_bytes)


def _export_with_adapter(
    checkpoint: Path,
    output: Path,
    config: TrainingConfig,
    *,
    files: str,
    saved: dict[str, Any],
    max_shard_bytes: int,
) -> None:
    """Merge the adapter of the checkpoint with the base model from its files."""
    options = ModelOptions(
        mesh=init_device_mesh("cpu", (1,)),
        dtype=torch.float32,
        lora=config.model.lora,
        trust_remote_code=config.model.trust_remote_code,
    )
    model = load_sharded_model("actor", files, options, forward=type(None))  # the model is not run
    parts = {"model": ModelState(model)}
    check_part(checkpoint, "model", parts["model"], saved)
    load_parts(checkpoint, parts)
    tokenizer = load_tokenizer(config.model)
    dtype = DTYPES[config.model.dtype]
    export(model, tokenizer, output, dtype, max_shard_bytes=max_shard_bytes)


def _build_architecture(config: TrainingConfig, files: str) -> PreTrainedModel:
    """Build the model on the meta device, without weights."""
    with torch.device("meta"):
        architecture = load_config_from(files, trust_remote_code=config.model.trust_remote_code)
        model: PreTrainedModel = find_auto_class(architecture).from_config(
            architecture, trust_remote_code=config.model.trust_remote_code
        )
    return model


def _stream_weights(checkpoint: Path, saved: dict[str, Any], model: PreTrainedModel, max_bytes: int) -> Weights:
    """Stream the weights. Raises ValueError immediately if they belong to a different model."""
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    tied = every - {name for name, _ in model.named_parameters()}  # further names of tied weights
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items() if name not in tied}
    found = {name: shape for name, shape in select_shapes(saved, "model").items() if name not in tied}
    check_shapes(checkpoint, found, wanted)

    def read() -> Iterator[tuple[str, Tensor]]:
        for part in split_shards(((name, _create_meta_tensor(saved[f"model.{name}"])) for name in wanted), max_bytes):
            tensors = {name: torch.empty_like(outline, device="cpu") for name, outline in part.items()}
            dcp_load({"model": tensors}, storage_reader=FileSystemReader(checkpoint))
            yield from tensors.items()

    return read()


def _create_meta_tensor(entry: TensorStorageMetadata) -> Tensor:
    return torch.empty(entry.size, dtype=entry.properties.dtype, device="meta")


@contextmanager
def single_rank_group() -> Iterator[None]:
    """Initialize a process group of one rank, which the code that reads checkpoints needs."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
