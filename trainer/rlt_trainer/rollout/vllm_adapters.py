"""Adapters that vLLM applies itself (model.lora.syncAdapters): their place in vLLM, and the files that it loads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rlt_api.blocks.model import Lora
from rlt_api.spec.engine_options import MAX_LORA_RANKS
from rlt_trainer.policy.config import load_config_from
from rlt_trainer.policy.families import find_auto_class
from rlt_trainer.policy.lora import add_adapters, is_adapter

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest

SYNCED = "synced"
"""In place of a folder, in the requests for responses: vLLM reads it only if it does not have the adapters."""


@dataclass(frozen=True)
class Adapters:
    """The adapters of a policy."""

    rank: int
    modules: tuple[str, ...]
    """The last name part of the layers with an adapter, such as q_proj."""

    @classmethod
    def of(cls, files: str, lora: Lora, *, trust_remote_code: bool) -> Adapters:
        """Find the layers that get an adapter in the model in the folder `files`."""
        config = load_config_from(files, trust_remote_code=trust_remote_code)
        with torch.device("meta"):
            model = find_auto_class(config).from_config(config, trust_remote_code=trust_remote_code)
        add_adapters(model, lora)
        return cls(lora.rank, list_modules([name for name, _ in model.named_parameters() if is_adapter(name)]))

    def options(self) -> dict[str, Any]:
        """Build the options of vLLM.

        vLLM would also wrap the output layer, although it has no adapter, and its CPU build fails there in requests
        for the log-probabilities of a prompt (vllm/lora/punica_wrapper/punica_cpu.py, add_lora_logits, vLLM 0.32).
        """
        return {
            "enable_lora": True,
            "max_lora_rank": next(each for each in MAX_LORA_RANKS if each >= self.rank),
            "lora_target_modules": list(self.modules),
        }

    def write(self, weights: Mapping[str, Tensor], folder: Path) -> None:
        """Write the files of adapters under peft's names, whose lora_B includes the scale."""
        save_file(dict(weights), folder / "adapter_model.safetensors", metadata={"format": "pt"})
        config = {"r": self.rank, "lora_alpha": self.rank, "target_modules": self.modules}
        (folder / "adapter_config.json").write_text(json.dumps(config))


def list_modules(names: Iterable[str]) -> tuple[str, ...]:
    """List the last part of the layers' names, by the names of their adapters."""
    return tuple(sorted({name.partition(".lora_")[0].rpartition(".")[2] for name in names}))


def build_lora_request(folder: str = SYNCED) -> LoRARequest:
    """Build the reference to the adapters of the policy. With a `folder`, vLLM loads them from it."""
    from vllm.lora.request import LoRARequest

    return LoRARequest("policy", 1, folder, load_inplace=folder != SYNCED)
