"""Every rank reads and holds only its shards, which together equal the files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ranks import join, run_ranks
from transformers import AutoConfig, Qwen3ForCausalLM, Qwen3MoeForCausalLM

RANKS = 2
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}


def write_model(folder: Path) -> None:
    """Write a bfloat16 model with tied embeddings in several files."""
    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=301,
        num_key_value_heads=1,
        head_dim=16,
        tie_word_embeddings=True,
        num_hidden_layers=3,
        **SIZES,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).bfloat16()  # type: ignore[no-untyped-call]
    model.save_pretrained(folder, max_shard_size="20KB")


def write_mixture(folder: Path) -> None:
    """Write a bfloat16 mixture of six experts in each of 16 layers. Its files have tensors for each expert."""
    config = AutoConfig.for_model(
        "qwen3_moe",
        vocab_size=64,
        num_key_value_heads=1,
        head_dim=16,
        num_hidden_layers=16,
        num_experts=6,
        num_experts_per_tok=2,
        moe_intermediate_size=96,
        **SIZES,
    )
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(config).bfloat16()  # type: ignore[no-untyped-call]
    model.save_pretrained(folder, max_shard_size="400KB")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "parts"), [(write_model, 1), (write_mixture, 1), (write_mixture, 2)], ids=("model", "mixture", "experts")
)
def test_no_rank_reads_or_holds_the_full_model(write: Callable[[Path], None], parts: int, tmp_path: Path) -> None:
    write(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    reports = run_ranks(one_rank, [(str(tmp_path), parts, rank, RANKS) for rank in range(RANKS)])
    stored = sum(file.stat().st_size for file in tmp_path.glob("*.safetensors"))
    for report in reports:
        assert report["same"]
        assert report["read"] < 0.6 * stored
        assert report["held"] < 0.6 * report["elements"]
        if write is write_mixture:  # the other model has three layers: the embedding is a large part of it
            assert report["peak"] < 1.2 * 4 * report["held"]


def test_files_without_safetensors_load_the_full_model_with_a_warning(
    tiny_model: str, tmp_path: Path, process_group: None
) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    from rlt_trainer.policy.log_probs import response_log_probs
    from rlt_trainer.policy.model import gather_weights, load_model
    from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model

    shutil.copytree(tiny_model, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").unlink()
    expected = load_model(tiny_model, torch.float32)
    torch.save(expected.state_dict(), tmp_path / "pytorch_model.bin")
    options = ModelOptions(mesh=init_device_mesh("cpu", (1,)), dtype=torch.float32)
    with pytest.warns(UserWarning, match="every rank loads the full model once"):
        model = load_sharded_model("actor", str(tmp_path), options, response_log_probs)
    assert all(torch.equal(weight, expected.state_dict()[name]) for name, weight in gather_weights(model))
    assert model.generation_config.eos_token_id == expected.generation_config.eos_token_id
    assert model.generation_config.do_sample  # from the folder's generation_config.json


def one_rank(folder: str, parts: int, rank: int, ranks: int) -> dict[str, float]:
    import torch.distributed as dist
    from peak_bytes import PeakBytes
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor

    from rlt_api.blocks.training import Training
    from rlt_trainer.policy import sharded_weights
    from rlt_trainer.policy.log_probs import response_log_probs
    from rlt_trainer.policy.mesh import create_expert_mesh
    from rlt_trainer.policy.model import gather_weights, load_model
    from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model
    from rlt_trainer.policy.weight_files import SafetensorsFiles, to_file_format
    from rlt_trainer.rollout.expert_stacks import iterate_experts

    opened: list[SafetensorsFiles] = []

    class Counted(SafetensorsFiles):
        def __init__(self, files: str) -> None:
            super().__init__(files)
            opened.append(self)

    pytest.MonkeyPatch().setattr(sharded_weights, "SafetensorsFiles", Counted)
    join(rank, ranks)
    options = ModelOptions(
        mesh=init_device_mesh("cpu", (ranks,)),
        expert_mesh=create_expert_mesh("cpu", Training(expert_parallel_size=parts), ranks),
        dtype=torch.float32,
    )
    with PeakBytes() as counted:
        model = load_sharded_model("actor", folder, options, response_log_probs)
    read = opened[0].bytes_read
    held = sum(each.to_local().numel() for each in model.parameters() if isinstance(each, DTensor))
    expected = load_model(folder, torch.float32)
    gathered = dict(gather_weights(model))
    named = dict(expected.named_parameters())
    same = gathered.keys() == named.keys() and all(torch.equal(gathered[name], named[name]) for name in named)
    buffers = dict(expected.named_buffers())
    same = same and all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    sent = dict(iterate_experts(to_file_format(model, gather_weights(model))))
    stored = {name: opened[0].read(name, (slice(None),)).float() for name in opened[0].names()}
    same = same and sent.keys() == stored.keys() and all(torch.equal(sent[name], stored[name]) for name in stored)
    frozen = load_sharded_model(
        "actor", folder, replace(options, frozen=True, dtype=torch.bfloat16), response_log_probs
    )
    sent = dict(iterate_experts(to_file_format(frozen, gather_weights(frozen))))
    same = same and all(torch.equal(sent[name], stored[name].bfloat16()) for name in stored)
    dist.destroy_process_group()
    elements = sum(each.numel() for each in named.values())
    return {
        "same": same,
        "read": read,
        "held": held,
        "elements": elements,
        "peak": counted.peak,
    }
