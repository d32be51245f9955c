"""Export in the Hugging Face format: safetensors files of bounded size, configs and tokenizer."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.core_model_loading import revert_weight_conversion

from rlt_trainer.checkpoint.marker import fsync
from rlt_trainer.checkpoint.saver import describe_free_space
from rlt_trainer.errors import TrainingError
from rlt_trainer.policy.lora import is_adapter, save_adapter
from rlt_trainer.policy.model import gather_weights, iterate_buffers
from rlt_trainer.policy.router_bias import BIAS

MAX_SHARD_BYTES = 5 * 10**9
"""Maximum size of a file, unless a single tensor is larger: the default of transformers 4."""
ADAPTER = "adapter"
"""Folder of the LoRA adapter, next to the merged weights."""
COPIED = ("generation_config.json", "preprocessor_config.json", "processor_config.json")
"""Files that the training does not change. transformers rejects on save some generation configs that it loads."""

Weights = Iterable[tuple[str, Tensor]]


def export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    dtype: torch.dtype,
    *,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write a sharded model, and its LoRA adapter if it has one.

    Collective. Rank 0 writes, and holds the weights of one file and one layer. The other ranks return after the last
    gather, without a barrier: rank 0 may flush to a slow disk for longer than the timeout of a collective.
    Raises TrainingError if the model cannot be written.
    """
    weights = chain(gather_weights(model), iterate_buffers(model))
    if dist.get_rank() != 0:
        for _, weight in weights:
            if weight.is_cuda:  # else all gathers are queued at once, and NCCL's timeout starts then
                torch.cuda.synchronize(weight.device)
        if has_adapters(model):
            save_adapter(model, directory)
    else:
        with replace_directory(directory) as partial:
            write_model(weights, model, tokenizer, partial, dtype, max_shard_bytes=max_shard_bytes)
            if has_adapters(model):
                save_adapter(model, partial / ADAPTER)


def has_adapters(model: PreTrainedModel) -> bool:
    """Whether the model has LoRA adapters."""
    return any(is_adapter(name) for name, _ in model.named_parameters())


def write_model(
    weights: Weights,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    dtype: torch.dtype,
    *,
    max_shard_bytes: int,
) -> None:
    """Write `weights` in `dtype`, and the configs of `model`. The weights of `model` are not used.

    The correction biases of routers are written in float32, as transformers and vLLM load them.

    The name_or_path of the model's config must be the folder that it was loaded from.
    """
    converted = (
        (name, tensor.detach().to("cpu", torch.float32 if name.rpartition(".")[2] == BIAS else dtype))
        for name, tensor in weights
    )
    write_shards(
        converted,
        directory,
        max_bytes=max_shard_bytes,
        to_disk=lambda part: dict(revert_weight_conversion(model, part)),
    )
    config = copy.deepcopy(model.config)
    config.dtype = dtype
    config.architectures = config.architectures or [type(model).__name__]
    config.save_pretrained(directory)
    for name in COPIED:
        file = Path(model.config.name_or_path or "") / name
        if file.is_file():
            shutil.copyfile(file, directory / name)
    tokenizer.save_pretrained(directory)


def write_shards(
    weights: Weights,
    directory: Path,
    *,
    max_bytes: int,
    to_disk: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
) -> None:
    """Write safetensors files of at most `max_bytes` of weights each, and an index if there are several.

    to_disk: converts a file's tensors from the model's format to the files' format. transformers fuses some tensors on
    load, for example experts' tensors.
    """
    files: list[list[str]] = []
    total = 0
    for shard in split_shards(weights, max_bytes):
        tensors = {name: tensor.contiguous() for name, tensor in to_disk(shard).items()}
        save_file(tensors, directory / f"{len(files)}.safetensors", metadata={"format": "pt"})
        total += sum(tensor.nbytes for tensor in tensors.values())
        files.append(list(tensors))
    names = ["model.safetensors"]
    if len(files) > 1:
        names = [f"model-{i:05}-of-{len(files):05}.safetensors" for i in range(1, len(files) + 1)]
        weight_map = {name: file for file, contents in zip(names, files, strict=True) for name in contents}
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    for i, name in enumerate(names):
        (directory / f"{i}.safetensors").rename(directory / name)


def split_shards(weights: Weights, max_bytes: int) -> Iterator[dict[str, Tensor]]:
    """Split the weights, in order, into parts of at most `max_bytes`, or of one larger tensor."""
    part: dict[str, Tensor] = {}
    size = 0
    for name, tensor in weights:
        if part and size + tensor.nbytes > max_bytes:
            yield part
            part = {}
            size = 0
        part[name] = tensor
        size += tensor.nbytes
    yield part


@contextmanager
def replace_directory(directory: Path) -> Iterator[Path]:
    """Yield a folder to write to, which replaces `directory` atomically at the end. Raises TrainingError on failure."""
    partial = directory.with_name(f"{directory.name}.tmp")
    old = directory.with_name(f"{directory.name}.old.tmp")
    for stale in (partial, old):
        shutil.rmtree(stale, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        for path in (*sorted(partial.rglob("*")), partial):
            fsync(path)
        if directory.exists():
            directory.rename(old)
        partial.rename(directory)
        fsync(directory.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise TrainingError(
            f"The model could not be exported to {directory}: {error} ({describe_free_space(directory)}). The "
            "checkpoints are unchanged: free disk space, and run `rlt-trainer export` on one of them."
        ) from error
    shutil.rmtree(old, ignore_errors=True)
