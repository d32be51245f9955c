"""Every rank reads and holds only its shards, which together equal the files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from ranks import run_ranks
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlt_trainer.cluster.rendezvous import free_port

RANKS = 2


def write_model(folder: Path) -> None:
    """Write a bfloat16 model with tied embeddings in several files."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = Qwen3Config(vocab_size=301, num_key_value_heads=1, head_dim=16, tie_word_embeddings=True, **sizes)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder, max_shard_size="20KB")


@pytest.mark.slow
def test_no_rank_reads_or_holds_the_full_model(tmp_path: Path) -> None:
    write_model(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    port = free_port("127.0.0.1")
    reports = run_ranks(one_rank, [(str(tmp_path), rank, RANKS, port) for rank in range(RANKS)])
    stored = sum(file.stat().st_size for file in tmp_path.glob("*.safetensors"))
    for report in reports:
        assert report["same"]
        assert report["read"] < 0.6 * stored
        assert report["held"] < 0.6 * report["elements"]


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


def one_rank(folder: str, rank: int, ranks: int, port: int) -> dict[str, float]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor

    from rlt_trainer.policy import sharded_weights
    from rlt_trainer.policy.log_probs import response_log_probs
    from rlt_trainer.policy.model import gather_weights, load_model
    from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model

    opened: list[sharded_weights.SafetensorsFiles] = []

    class Counted(sharded_weights.SafetensorsFiles):
        def __init__(self, files: str) -> None:
            super().__init__(files)
            opened.append(self)

    sharded_weights.SafetensorsFiles = Counted  # type: ignore[misc]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    options = ModelOptions(mesh=init_device_mesh("cpu", (ranks,)), dtype=torch.float32)
    model = load_sharded_model("actor", folder, options, response_log_probs)
    held = sum(each.to_local().numel() for each in model.parameters() if isinstance(each, DTensor))
    expected, gathered = load_model(folder, torch.float32), dict(gather_weights(model))
    named = dict(expected.named_parameters())
    same = gathered.keys() == named.keys() and all(torch.equal(gathered[name], named[name]) for name in named)
    buffers = dict(expected.named_buffers())
    same = same and all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    dist.destroy_process_group()
    elements = sum(each.numel() for each in named.values())
    return {"same": same, "read": opened[0].bytes_read, "held": held, "elements": elements}
