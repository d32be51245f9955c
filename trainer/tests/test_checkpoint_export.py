"""The exported model is the trained one, in files that transformers loads."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from job_specs import BUILTIN
from ranks import join, run_ranks
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3MoeConfig,
)

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.model import Lora
from rlt_api.frameworks.export import build_checkpoint_export
from rlt_api.frameworks.run import Run
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.__main__ import main
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.export import export, split_shards
from rlt_trainer.checkpoint.export_checkpoint import single_rank_group
from rlt_trainer.checkpoint.marker import fsync
from rlt_trainer.checkpoint.parts import ModelState
from rlt_trainer.checkpoint.saver import Saver
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.policy.weight_files import SafetensorsFiles

MakeConfig = Callable[..., TrainingConfig]
SMALL: dict[str, Any] = {
    "vocab_size": 260,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def random_model(architecture: PreTrainedConfig) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_config(architecture)  # type: ignore[no-untyped-call]
    return model


def on_disk(model: PreTrainedModel, directory: Path) -> str:
    """Write the model with a tokenizer and a generation config."""
    model.save_pretrained(directory)
    build_byte_tokenizer().save_pretrained(directory)
    (directory / "generation_config.json").write_text('{"do_sample": false, "temperature": 0.6, "eos_token_id": 2}')
    return str(directory)


def trained(files: str, lora: Lora | None = None) -> PreTrainedModel:
    """Return a sharded model whose weights differ from its files."""
    from torch.distributed.device_mesh import init_device_mesh

    from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model

    options = ModelOptions(mesh=init_device_mesh("cpu", (dist.get_world_size(),)), dtype=torch.float32, lora=lora)
    model = load_sharded_model("actor", files, options, forward=type(None))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.5)
    return model


def weights(directory: Path) -> dict[str, Tensor]:
    """Return the weights that transformers loads, by name."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return dict(model.named_parameters())


def names(directory: Path) -> set[str]:
    """Return the names of the weights in the files."""
    return SafetensorsFiles(str(directory)).names()


@pytest.mark.parametrize(
    "architecture",
    [
        Qwen3Config(**SMALL, tie_word_embeddings=False),
        Qwen3Config(**SMALL, tie_word_embeddings=True),
        Qwen3MoeConfig(**SMALL, **EXPERTS),
    ],
    ids=["plain", "tied", "experts"],
)
def test_a_checkpoints_export_equals_the_runs_export(
    architecture: PreTrainedConfig, make_config: MakeConfig, tmp_path: Path
) -> None:
    model = random_model(architecture)
    files = on_disk(model, tmp_path / "base")
    run = tmp_path / "run"
    with single_rank_group():
        policy = trained(files)
        export(policy, build_byte_tokenizer(), run / "export", torch.float32, max_shard_bytes=30_000)
        Saver(run / "checkpoints", Checkpoint()).save(3, {"model": ModelState(policy)}, DriverState())
    expected = {name: parameter + 0.5 for name, parameter in model.named_parameters()}
    found = weights(run / "export")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert names(run / "export") == names(Path(files)), "transformers' names, such as the names of single experts"

    output = command(run, make_config(model={"fromSeed": None, "path": files}))
    again = weights(output)
    assert all(torch.equal(found[name], again[name]) for name in found)
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        assert (output / name).read_text() == (run / "export" / name).read_text()


def command(run: Path, config: TrainingConfig) -> Path:
    """Run the command of `rlt export --step 3`, and return its output folder."""
    (run / "config.json").write_text(config.model_dump_json(by_alias=True))
    spec = RLTrainingJobSpec.model_validate(BUILTIN, by_alias=True, by_name=False)
    built = build_checkpoint_export(spec, Run("sum", "demo", str(run)), 3)
    assert built
    assert built.command[0] == "rlt-trainer"
    assert main(built.command[1:]) == 0
    return Path(built.directory)


def test_an_adapter_is_merged_and_also_saved_separately(make_config: MakeConfig, tmp_path: Path) -> None:
    from peft import PeftModel

    lora = Lora(rank=2)
    model = random_model(Qwen3Config(**SMALL, tie_word_embeddings=False))
    files = on_disk(model, tmp_path / "base")
    run = tmp_path / "run"
    with single_rank_group():
        policy = trained(files, lora)
        export(policy, build_byte_tokenizer(), run / "export", torch.float32)
        Saver(run / "checkpoints", Checkpoint()).save(3, {"model": ModelState(policy)}, DriverState())
    merged = weights(run / "export")
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(files), run / "export" / "adapter")
    expected = dict(adapted.merge_and_unload().named_parameters())
    assert merged.keys() == expected.keys()
    assert all(torch.allclose(merged[name], expected[name], atol=1e-6) for name in expected)
    changed = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(merged[changed], model.get_parameter(changed))

    shards = (run / "checkpoints" / "step-3").glob("*.distcp")
    assert sum(path.stat().st_size for path in shards) < 100_000, "the base weights are saved"
    config = make_config(model={"fromSeed": None, "path": files, "lora": {"rank": 2}})
    output = command(run, config)
    again = weights(output)
    assert all(torch.equal(merged[name], again[name]) for name in merged)
    assert (output / "adapter" / "adapter_model.safetensors").is_file()


def test_the_correction_biases_of_routers_keep_float32(make_config: MakeConfig, tmp_path: Path) -> None:
    """A change of 0.001 is less than bfloat16's precision of 1/256 at 0.5."""
    sizes: dict[str, Any] = {"num_key_value_heads": 2, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}
    latent = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    files = on_disk(random_model(DeepseekV3Config(**{**SMALL, **sizes, **latent, **experts})), tmp_path / "base")
    run = tmp_path / "run"
    bias = torch.tensor([0.501, 0.499, 0.5, -0.001])
    with single_rank_group():
        policy = trained(files)
        policy.get_buffer("model.layers.1.mlp.gate.e_score_correction_bias").copy_(bias)
        export(policy, build_byte_tokenizer(), run / "export", torch.bfloat16)
        Saver(run / "checkpoints", Checkpoint()).save(3, {"model": ModelState(policy)}, DriverState())
    output = command(run, make_config(model={"fromSeed": None, "path": files, "dtype": "bfloat16"}))
    for directory in (run / "export", output):
        model = AutoModelForCausalLM.from_pretrained(directory)
        assert model.dtype == torch.bfloat16
        assert torch.equal(model.get_buffer("model.layers.1.mlp.gate.e_score_correction_bias"), bias)


def test_files_are_limited_in_bytes_or_have_one_tensor() -> None:
    sizes = {"a": 10, "b": 10, "c": 50, "d": 10, "e": 20}
    parts = split_shards([(name, torch.zeros(size, dtype=torch.int8)) for name, size in sizes.items()], 30)
    assert [list(part) for part in parts] == [["a", "b"], ["c"], ["d", "e"]]


def test_a_checkpoint_of_another_model_is_not_exported(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = on_disk(random_model(Qwen3Config(**SMALL)), tmp_path / "base")
    with single_rank_group():
        Saver(tmp_path / "checkpoints", Checkpoint()).save(3, {"model": ModelState(trained(files))}, DriverState())
    (tmp_path / "config.json").write_text(make_config().model_dump_json(by_alias=True))
    arguments = ["export", "--checkpoint", str(tmp_path / "checkpoints" / "step-3"), "--output", str(tmp_path / "out")]
    assert main(arguments) == 1
    assert "step-3 is a checkpoint of another model: model.embed_tokens.weight is [" in capsys.readouterr().err
    (tmp_path / "checkpoints" / "step-3" / "complete").unlink()
    assert main(arguments) == 1
    assert "Its folder has no other one." in capsys.readouterr().err
    (tmp_path / "checkpoints" / "step-3" / "complete").touch()
    assert main([*arguments[:2], str(tmp_path / "checkpoints" / "step-2"), *arguments[3:]]) == 1
    error = capsys.readouterr().err
    assert "step-2: not a complete checkpoint, its file complete is missing: it was not saved" in error
    assert "Use one of step-3 (`rlt export NAME --step N`)." in error
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_no_rank_waits_in_a_collective_for_the_disk(tiny_model: str, tmp_path: Path) -> None:
    """Flushing a large model may take longer than the timeout of a collective."""
    run_ranks(one_rank, [(tiny_model, tmp_path, rank) for rank in range(2)])
    exported = weights(tmp_path / "export")
    start = weights(Path(tiny_model))
    assert all(torch.equal(exported[name], start[name] + 0.5) for name in start)


def one_rank(files: str, directory: Path, rank: int) -> None:
    """Export with a disk on rank 0 that is slow until rank 1 is done."""
    from rlt_trainer.checkpoint import export as module

    done = directory / "rank-1-is-done"
    deadline = time.monotonic() + 60

    def slow(path: Path) -> None:
        while not done.exists():
            assert time.monotonic() < deadline, "rank 1 waits for rank 0"
            time.sleep(0.05)
        fsync(path)

    pytest.MonkeyPatch().setattr(module, "fsync", slow)
    join(rank, 2)
    export(trained(files), build_byte_tokenizer(), directory / "export", torch.float32)
    if rank == 1:
        done.touch()
    dist.destroy_process_group()
