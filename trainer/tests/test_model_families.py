"""Log-probabilities and values of each model family equal transformers', or the family is rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import transformers
from family_check import assert_equal, write_tiny_model
from model_families import (
    DATA,
    FAMILIES,
    PAGE,
    build_data,
    build_introduction,
    build_page,
    build_row,
    measure,
    measure_all,
    one_thread,
)
from packaging.version import Version
from tiny_families import build_tiny_config
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from transformers import (
    BertConfig,
    DeepseekV3Config,
    Gemma3TextConfig,
    Qwen3_5MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from rlt_api.blocks.model import Lora
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.driver.run import run
from rlt_trainer.policy import families, sharded_model
from rlt_trainer.policy.families import (
    validate_adapters,
    validate_critic_family,
    validate_expert_parallel,
    validate_family,
)

SAMPLE = (
    *("qwen3", "llama", "gemma2", "gemma3", "gemma3n_text", "granite", "hyperclovax", "cohere2", "falcon_h1"),
    *("minicpm3", "inkling_text", "gpt2", "gpt_oss", "mixtral", "deepseek_v3", "qwen3_next", "mamba", "bloom", "phi3"),
)
"""One of each kind: buffer, logit scale, cap, mixture, recurrence and position."""


@pytest.fixture
def cpu_mesh(one_rank: None) -> Iterator[DeviceMesh]:
    with one_thread():
        yield init_device_mesh("cpu", (1,))


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_family_equals_transformers(model_type: str, cpu_mesh: DeviceMesh) -> None:
    assert build_row(model_type, measure(model_type, cpu_mesh)) in PAGE.read_text().splitlines()


@pytest.mark.slow
@pytest.mark.long
def test_the_page_is_up_to_date(cpu_mesh: DeviceMesh) -> None:
    supports = measure_all(cpu_mesh)
    assert PAGE.read_text() == build_page(supports), "run .venv/bin/python trainer/oracles/model_families.py"
    assert DATA.read_text() == build_data(supports), "run .venv/bin/python trainer/oracles/model_families.py"


@pytest.mark.skipif(Version(transformers.__version__) < Version("5.19"), reason="the page is for transformers 5.19")
def test_the_page_lists_every_causal_language_model() -> None:
    lines = PAGE.read_text().splitlines()
    introduction = build_introduction()
    assert lines[: len(introduction)] == introduction
    rows = [line.split("`")[1] for line in lines[len(introduction) :]]
    assert rows == list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert families.UNSUPPORTED.keys() | families.NOT_PACKABLE.keys() <= FAMILIES.keys()


@pytest.mark.parametrize("kind", ["actor", "critic"])
def test_buffers_beside_weights_are_initialized(
    kind: sharded_model.Kind, tmp_path: Path, cpu_mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_model("gemma2", tmp_path)
    assert_equal("gemma2", kind, tmp_path, cpu_mesh, packed=False)
    monkeypatch.setattr(sharded_model, "_initialize_buffers", lambda model: None)  # the comparison detects it
    with pytest.raises(AssertionError, match=f"gemma2: {kind} padded differs from transformers"):
        assert_equal("gemma2", kind, tmp_path, cpu_mesh, packed=False)


@pytest.mark.parametrize("model_type", ["bloom", "codegen", "gpt_oss", "doge", "gemma2", "qwen3_next", "bart"])
def test_packing_is_rejected_before_the_model_is_loaded(model_type: str) -> None:
    with pytest.raises(ValueError, match=rf"^model\.\w+.* models of type {model_type}"):
        validate_family(build_tiny_config(model_type), packed=True)


def test_adapters_on_experts_are_rejected() -> None:
    config = build_tiny_config("qwen3_moe")
    for targets in (["all-linear"], ["q_proj", "gate_proj"]):
        with pytest.raises(
            ValueError, match=r"model\.lora\.targetModules: .* contains experts or routers of qwen3_moe models"
        ):
            validate_adapters(config, Lora(rank=4, target_modules=targets))
    validate_adapters(config, Lora(rank=4, target_modules=["q_proj", "o_proj"]))
    validate_adapters(build_tiny_config("gpt_oss"), Lora(rank=4))  # its experts are parameters, which peft leaves alone


def test_experts_are_split_for_families_and_numbers_that_fit() -> None:
    mixture = Qwen3MoeConfig(num_experts=12)
    dense = build_tiny_config("qwen3")
    validate_expert_parallel(mixture, 4)
    validate_expert_parallel(dense, 1)
    for config in (mixture, DeepseekV3Config(n_routed_experts=12), Qwen3_5MoeConfig(text_config={"num_experts": 12})):
        with pytest.raises(
            ValueError, match=r"expertParallelSize: 8 does not divide the 12 experts of a layer\. Use 4"
        ):
            validate_expert_parallel(config, 8)
    with pytest.raises(ValueError, match=r"expertParallelSize: 2 is not supported for models of type qwen3, only for"):
        validate_expert_parallel(dense, 2)


def test_an_encoder_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"model\.path: models of type bert are not supported: its attention is not"):
        validate_family(BertConfig(), packed=False)


def test_a_family_without_value_head_is_rejected_as_a_critic() -> None:
    validate_critic_family(Qwen3Config(), packed=True)
    with pytest.raises(ValueError, match=r"algorithm\.critic\.modelPath: .* gemma3_text models"):
        validate_critic_family(Gemma3TextConfig(), packed=False)


def test_the_driver_rejects_a_family_before_it_starts_workers(
    tmp_path: Path, make_config: Callable[..., TrainingConfig], tiny_model: str
) -> None:
    BertConfig(vocab_size=1024).save_pretrained(tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_text((Path(tiny_model) / file).read_text())
    config = make_config(model={"path": str(tmp_path), "fromSeed": None})
    with pytest.raises(ValueError, match="models of type bert are not supported"):
        run(config, local=True)
    assert torch.distributed.is_initialized() is False
