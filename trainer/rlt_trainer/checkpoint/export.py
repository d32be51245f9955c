"""The finished model in Hugging Face's format: safetensors in files of bounded size, configs and tokenizer."""

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

from rlt_trainer.checkpoint.marker import sync
from rlt_trainer.checkpoint.saver import free_space
from rlt_trainer.errors import TrainingError
from rlt_trainer.policy.lora import base_name, is_adapter, save_adapter
from rlt_trainer.policy.model import gather_weights

MAX_SHARD_BYTES = 5 * 10**9
"""The largest file, unless a single tensor is larger: what transformers wrote until its version 4."""
ADAPTER = "adapter"
"""Folder of the LoRA adapter beside the merged weights."""
GENERATION = "generation_config.json"

Weights = Iterable[tuple[str, Tensor]]


def export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    dtype: torch.dtype,
    *,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write a sharded model, and its LoRA adapter if it has one. Collective: rank 0 writes, and holds one file's worth
    of weights and one layer. The others return when they have given theirs: whoever called all ranks waits for rank 0,
    which may flush a large model to a slow disk for longer than a collective waits.

    Raises TrainingError if it cannot be written.
    """
    weights = chain(gather_weights(model), persistent_buffers(model))
    if dist.get_rank() != 0:
        for _, weight in weights:
            if weight.is_cuda:  # else all gatherings would be queued at once, and NCCL's timeout runs from then
                torch.cuda.synchronize(weight.device)
        if has_adapters(model):
            save_adapter(model, directory)
    else:
        with replacing(directory) as partial:
            write_model(weights, model, tokenizer, partial, dtype, max_shard_bytes=max_shard_bytes)
            if has_adapters(model):
                save_adapter(model, partial / ADAPTER)


def persistent_buffers(model: PreTrainedModel) -> Weights:
    """What a file has beside parameters: the same on all ranks."""
    saved = model.state_dict().keys()
    return ((base_name(name), buffer) for name, buffer in model.named_buffers() if name in saved)


def has_adapters(model: PreTrainedModel) -> bool:
    """Whether it is trained with LoRA."""
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
    """Write `weights` in `dtype`, and the configs of `model`, whose own weights are not looked at. Its name_or_path is
    the folder that it was read from."""
    converted = ((name, tensor.detach().to("cpu", dtype)) for name, tensor in weights)
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
    generation = Path(model.config.name_or_path or "") / GENERATION
    if generation.is_file():  # as it is: transformers refuses to write some that it reads
        shutil.copyfile(generation, directory / GENERATION)
    tokenizer.save_pretrained(directory)


def write_shards(
    weights: Weights,
    directory: Path,
    *,
    max_bytes: int,
    to_disk: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
) -> None:
    """Write safetensors files of at most `max_bytes` of weights each, and their index if they are several.

    `to_disk` turns a file's tensors, as the model has them, into those that are written: transformers fuses some
    (experts, for instance) when it loads.
    """
    files: list[list[str]] = []
    total = 0
    for shard in shards(weights, max_bytes):
        tensors = {name: tensor.contiguous() for name, tensor in to_disk(shard).items()}
        save_file(tensors, directory / f"{len(files)}.safetensors", metadata={"format": "pt"})
        total += sum(tensor.nbytes for tensor in tensors.values())
        files.append(list(tensors))
    names = ["model.safetensors"]
    if len(files) > 1:
        names = [f"model-{i:05}-of-{len(files):05}.safetensors" for i in range(1, len(files) + 1)]
        weight_map = {name: file for file, inside in zip(names, files, strict=True) for name in inside}
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    for i, name in enumerate(names):
        (directory / f"{i}.safetensors").rename(directory / name)


def shards(weights: Weights, max_bytes: int) -> Iterator[dict[str, Tensor]]:
    """The weights in their order, in parts of at most `max_bytes`, or of one tensor that is larger."""
    part: dict[str, Tensor] = {}
    size = 0
    for name, tensor in weights:
        if part and size + tensor.nbytes > max_bytes:
            yield part
            part, size = {}, 0
        part[name] = tensor
        size += tensor.nbytes
    yield part


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """A folder to write to, which takes the place of `directory` at the end. Raises TrainingError if that fails."""
    partial, old = directory.with_name(f"{directory.name}.tmp"), directory.with_name(f"{directory.name}.old.tmp")
    for left in (partial, old):
        shutil.rmtree(left, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        for path in (*sorted(partial.rglob("*")), partial):
            sync(path)
        if directory.exists():
            directory.rename(old)
        partial.rename(directory)
        sync(directory.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise TrainingError(
            f"The model could not be exported to {directory}: {error} ({free_space(directory)}). The checkpoints are "
            "as they were: make room, and `rlt-trainer export` writes it from one of them."
        ) from error
    shutil.rmtree(old, ignore_errors=True)
