"""Liger's kernels (model.useLiger): which models have them, and the results of the policy."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close
from trained_families import FAMILIES, write_model
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_api.rules.model_families import LIGER_FAMILIES
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.liger import PACKAGE, VERSIONS, apply_liger, validate_liger

SEQUENCES = Sequences.pad([[50, 51], [60], [70]], [[70, 71, 72], [80], [90, 91]], pad_token_id=0)


def test_a_model_without_kernels_is_rejected_by_name() -> None:
    with pytest.raises(ValueError, match=r"model\.useLiger: true is not supported for models of type qwen3_moe"):
        validate_liger(Qwen3MoeConfig())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    with pytest.raises(ValueError, match=r"model\.useLiger: true requires the package liger-kernel"):
        validate_liger(LlamaConfig())


def install(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a liger-kernel without functions in `folder`."""
    package = folder / PACKAGE / "transformers"
    metadata = folder / f"{PACKAGE}-{version}.dist-info"
    for each in (package, metadata):
        each.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: liger-kernel\nVersion: {version}\n")
    for file in ("__init__.py", "transformers/__init__.py", "transformers/monkey_patch.py"):
        (folder / PACKAGE / file).touch()
    for module in ("", ".transformers", ".transformers.monkey_patch"):
        monkeypatch.setitem(sys.modules, PACKAGE + module, None)  # restored after the test
        monkeypatch.delitem(sys.modules, PACKAGE + module)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("version", ["0.8.4", "0.9.0"])
def test_another_version_is_named_with_those_that_work(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, version, monkeypatch)
    with pytest.raises(ValueError, match=rf"model\.useLiger: true .* liger-kernel 0\.8\.5, .* image has {version}"):
        validate_liger(LlamaConfig())


def test_a_missing_function_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, VERSIONS[-1], monkeypatch)
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1))  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match=r"model\.useLiger: true: liger-kernel 0\.8\.5 .* _apply_liger_kernel_to_inst"):
        apply_liger(model)


@pytest.mark.skipif(find_spec(PACKAGE) is None, reason="requires liger-kernel, which only the image for CUDA has")
def test_liger_has_kernels_for_all_families() -> None:
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    assert set(LIGER_FAMILIES) <= set(MODEL_TYPE_TO_APPLY_LIGER_FN)


def build_actor(files: str, *, liger: bool) -> Actor:
    return Actor(
        files,
        model=Model(use_liger=liger, use_remove_padding=True),
        dtype=torch.bfloat16,
        mesh=init_device_mesh("cuda", (1,)),
        algorithm=Algorithm(kl_loss_coef=0, entropy_coeff=0.01),
        training=Training(total_steps=5, learning_rate=1e-3),
        temperature=1.0,
        max_response_length=8,
    )


def compare_with_torch(files: str) -> None:
    """Compare log-probabilities and an update. Liger replaces classes of transformers: torch's actor is first."""
    dist.init_process_group("nccl", init_method=f"file://{files}/store", rank=0, world_size=1)
    plain = build_actor(files, liger=False)
    old = plain.log_probs(SEQUENCES)[0]
    advantages = torch.tensor([[1.0], [-1.0], [0.5]]).expand(old.shape)
    batch = MiniBatch(Experience(SEQUENCES, old, advantages), 6, 3)
    expected = plain.update(batch)
    updated = plain.log_probs(SEQUENCES)[0]
    fused = build_actor(files, liger=True)
    assert_close(fused.log_probs(SEQUENCES)[0], old, atol=5e-2, rtol=0)
    found = fused.update(batch)
    assert found.grad_norm == pytest.approx(expected.grad_norm, rel=5e-2)
    assert_close(fused.log_probs(SEQUENCES)[0], updated, atol=1e-1, rtol=0)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(find_spec(PACKAGE) is None, reason="requires liger-kernel, which only the image for CUDA has")
@pytest.mark.parametrize("name", [name for name, each in FAMILIES.items() if each.model_type in LIGER_FAMILIES])
def test_a_policy_with_liger_has_the_results_of_torch(name: str, tmp_path: Path) -> None:
    write_model(FAMILIES[name], tmp_path)
    run_ranks(compare_with_torch, [(str(tmp_path),)])
