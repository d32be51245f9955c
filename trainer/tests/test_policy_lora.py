"""LoRA: only adapters are trained, the engine receives merged weights, and peft loads saved adapters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Lora, Model
from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.lora import is_adapter, save_adapter
from rlt_trainer.policy.model import load_model

pytestmark = pytest.mark.usefixtures("process_group")
SEQUENCES = Sequences.pad([[50, 51], [60]], [[70, 71, 72], [80]], pad_token_id=0)


MakeActor = Callable[..., Actor]
KINDS = {
    "lora": Lora(rank=4, alpha=8),
    "rslora": Lora(rank=4, alpha=8, use_rslora=True),
    "dora": Lora(rank=4, alpha=8, use_dora=True),
    "targets": Lora(rank=4, alpha=8, target_modules=["q_proj", "mlp.down_proj"]),
}


@pytest.fixture
def make_actor(tiny_model: str) -> MakeActor:
    def make(lora: Lora = KINDS["lora"]) -> Actor:
        return Actor(
            tiny_model,
            model=Model(lora=lora),
            dtype=torch.float32,
            mesh=init_device_mesh("cpu", (1,)),
            algorithm=Algorithm(kl_loss_coef=0.1),
            training=Training(total_steps=1, learning_rate=1e-2),
            temperature=1.0,
            max_response_length=8,
        )

    return make


def learn(actor: Actor) -> None:
    log_probs, _ = actor.log_probs(SEQUENCES)
    advantages = torch.tensor([[1.0], [-1.0]]).expand(log_probs.shape)
    ref_log_probs = actor.ref_log_probs(SEQUENCES)
    for _ in range(3):
        actor.update(MiniBatch(Experience(SEQUENCES, log_probs, advantages, ref_log_probs=ref_log_probs), 4, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_an_initial_adapter_has_no_effect(make_actor: MakeActor, tiny_model: str, kind: str) -> None:
    expected, _ = response_log_probs(load_model(tiny_model, torch.float32), SEQUENCES, temperature=1.0)
    assert_close(make_actor(KINDS[kind]).log_probs(SEQUENCES)[0], expected.detach())


@pytest.mark.parametrize("kind", KINDS)
def test_only_adapters_are_trained_and_the_reference_is_the_model_without_them(
    make_actor: MakeActor, kind: str
) -> None:
    actor = make_actor(KINDS[kind])
    before = {name: each.full_tensor().clone() for name, each in actor.model.named_parameters()}  # type: ignore[attr-defined]
    reference = actor.ref_log_probs(SEQUENCES)
    learn(actor)
    for name, each in actor.model.named_parameters():
        assert torch.equal(each.full_tensor(), before[name]) != is_adapter(name)  # type: ignore[attr-defined]
    assert torch.equal(actor.ref_log_probs(SEQUENCES), reference)
    assert not torch.allclose(actor.log_probs(SEQUENCES)[0], reference, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_gathered_weights_are_merged_under_the_names_of_the_model(
    make_actor: MakeActor, tiny_model: str, kind: str
) -> None:
    actor = make_actor(KINDS[kind])
    plain = load_model(tiny_model, torch.float32)
    learn(actor)
    plain.load_state_dict(dict(actor.gather_weights()), strict=True)
    assert_close(response_log_probs(plain, SEQUENCES, temperature=1.0)[0].detach(), actor.log_probs(SEQUENCES)[0])


@pytest.mark.parametrize("kind", ["rslora", "targets"])
def test_gathered_adapters_and_the_weights_below_them_add_up_to_the_merged_weights(
    make_actor: MakeActor, tiny_model: str, kind: str
) -> None:
    actor = make_actor(KINDS[kind])
    learn(actor)
    adapters = dict(actor.gather_adapters())
    merged = dict(actor.gather_weights())
    for name, weight in actor.gather_weights(merged=False):
        assert torch.equal(weight, load_file(f"{tiny_model}/model.safetensors")[name])
        layer = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{layer}.lora_A.weight" in adapters:
            weight = weight + adapters.pop(f"{layer}.lora_B.weight") @ adapters.pop(f"{layer}.lora_A.weight")
        assert_close(weight, merged[name])
    assert not adapters


@pytest.mark.parametrize("kind", KINDS)
def test_peft_loads_a_saved_adapter(make_actor: MakeActor, tiny_model: str, tmp_path: Path, kind: str) -> None:
    actor = make_actor(KINDS[kind])
    learn(actor)
    save_adapter(actor.model, tmp_path)
    adapted = PeftModel.from_pretrained(load_model(tiny_model, torch.float32), str(tmp_path)).merge_and_unload()
    assert_close(response_log_probs(adapted, SEQUENCES, temperature=1.0)[0].detach(), actor.log_probs(SEQUENCES)[0])


def test_adapters_are_on_the_targets_alone(make_actor: MakeActor) -> None:
    names = [name.partition(".lora_")[0] for name, _ in make_actor(KINDS["targets"]).model.named_parameters()]
    adapted = {name.rpartition(".")[2] for name in names if not name.endswith(("weight", "bias"))}
    assert adapted == {"q_proj", "down_proj"}


def test_rslora_divides_by_the_root_of_the_rank(make_actor: MakeActor) -> None:
    scales = [
        next(each.scaling["default"] for each in make_actor(KINDS[kind]).model.modules() if isinstance(each, LoraLayer))
        for kind in ("lora", "rslora")
    ]
    assert scales == [8 / 4, 8 / 4**0.5]


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["q_proj", "nowhere"], r"\[1\]: nowhere: no linear layer .* such as .*q_proj"),
        (["q_prj"], r"\[0\]: q_prj: no linear layer .* such as q_proj"),
        (["self_attn"], r"\[0\]: self_attn: no linear layer"),
        (["all-linear", "q_proj"], r"\[0\]: all-linear: no linear layer .* Use all-linear alone"),
        (["lm_head"], r"\[0\]: lm_head: .* output layer"),
    ],
)
def test_an_invalid_target_module_is_named(make_actor: MakeActor, targets: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=rf"model\.lora\.targetModules{message}"):
        make_actor(Lora(rank=4, target_modules=targets))
