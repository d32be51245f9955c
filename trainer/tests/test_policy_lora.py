"""Low-rank adapters: they alone learn, the engine gets them merged, and peft reads what is saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
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


@pytest.fixture
def make_policy(tiny_model: str) -> MakeActor:
    def make(targets: list[str] | None = None) -> Actor:
        lora = Lora(rank=4, alpha=8) if targets is None else Lora(rank=4, target_modules=targets)
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


def learn(policy: Actor) -> None:
    log_probs, _ = policy.log_probs(SEQUENCES)
    advantages = torch.tensor([[1.0], [-1.0]]).expand(log_probs.shape)
    ref_log_probs = policy.ref_log_probs(SEQUENCES)
    for _ in range(3):
        policy.update(MiniBatch(Experience(SEQUENCES, log_probs, advantages, ref_log_probs=ref_log_probs), 4, 2))


def test_an_adapter_changes_nothing_at_first(make_policy: MakeActor, tiny_model: str) -> None:
    expected, _ = response_log_probs(load_model(tiny_model, torch.float32), SEQUENCES, temperature=1.0)
    assert_close(make_policy().log_probs(SEQUENCES)[0], expected.detach())


def test_adapters_alone_learn_and_the_reference_is_the_model_without_them(make_policy: MakeActor) -> None:
    policy = make_policy()
    before = {name: each.full_tensor().clone() for name, each in policy.model.named_parameters()}  # type: ignore[attr-defined]
    reference = policy.ref_log_probs(SEQUENCES)
    learn(policy)
    for name, each in policy.model.named_parameters():
        assert torch.equal(each.full_tensor(), before[name]) != is_adapter(name)  # type: ignore[attr-defined]
    assert torch.equal(policy.ref_log_probs(SEQUENCES), reference)
    assert not torch.allclose(policy.log_probs(SEQUENCES)[0], reference, atol=1e-3)


def test_whole_weights_have_the_adapters_in_them_under_the_models_own_names(
    make_policy: MakeActor, tiny_model: str
) -> None:
    policy, plain = make_policy(), load_model(tiny_model, torch.float32)
    learn(policy)
    plain.load_state_dict(dict(policy.gather_weights()), strict=True)
    assert_close(response_log_probs(plain, SEQUENCES, temperature=1.0)[0].detach(), policy.log_probs(SEQUENCES)[0])


def test_peft_reads_what_is_saved(make_policy: MakeActor, tiny_model: str, tmp_path: Path) -> None:
    policy = make_policy()
    learn(policy)
    save_adapter(policy.model, tmp_path)
    adapted = PeftModel.from_pretrained(load_model(tiny_model, torch.float32), str(tmp_path)).merge_and_unload()
    assert_close(response_log_probs(adapted, SEQUENCES, temperature=1.0)[0].detach(), policy.log_probs(SEQUENCES)[0])


@pytest.mark.parametrize(("targets", "said"), [(["nowhere"], "nowhere"), (["lm_head"], "output layer")])
def test_a_module_that_cannot_have_one_is_named(make_policy: MakeActor, targets: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=rf"model\.lora\.targetModules.*{said}"):
        make_policy(targets)
