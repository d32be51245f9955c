"""The finished model in Hugging Face's format."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase


def export(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, directory: Path, dtype: torch.dtype) -> None:
    """Write weights (safetensors), configs and tokenizer, under another name first. Collective; rank 0 writes."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = cast("dict[str, Tensor]", get_model_state_dict(model, options=options))
    if dist.get_rank() == 0:
        partial = directory.with_name(f"{directory.name}.tmp")
        shutil.rmtree(partial, ignore_errors=True)
        with torch.device("meta"):
            # The sharded model has another class.
            plain = AutoModelForCausalLM.from_config(model.config, dtype=dtype)  # type: ignore[no-untyped-call]
        plain.generation_config = model.generation_config
        plain.save_pretrained(partial, state_dict={name: tensor.to(dtype) for name, tensor in weights.items()})
        tokenizer.save_pretrained(partial)
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
    dist.barrier()
