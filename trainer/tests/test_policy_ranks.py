"""Ten optimizer steps have the same losses for all settings of ranks, micro-batches, packing and memory."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from ranks import join, run_ranks

STEPS = 10
RELATIVE_TOLERANCE = 1e-3
ABSOLUTE_TOLERANCE = 1e-6
"""float32 sums differ by their order, and ten steps at a learning rate of 1e-3 amplify the difference."""

DYNAMIC = {"use_dynamic_bsz": True, "ppo_max_token_len_per_device": 20}
ALONE: dict[str, dict[str, Any]] = {
    "reference": {},
    "plain": {},  # without FSDP2, with full logits: run_plain
    "small micro-batches": {"training": {"ppo_micro_batch_size_per_device": 3}},
    "packed": {"model": {"use_remove_padding": True}},
    "dynamic": {"model": {"use_remove_padding": True}, "training": DYNAMIC},
    "checkpointing": {"model": {"enable_gradient_checkpointing": True}},
    "offload": {
        "training": {"fsdp": {"param_offload": True, "optimizer_offload": True, "reshard_after_forward": False}}
    },  # No effect on a CPU; test_policy_devices.py tests it on a GPU.
    "adapters": {"model": {"lora": {"rank": 4}}},
    "dora": {"model": {"lora": {"rank": 4, "use_dora": True}}},
    "muon": {"training": {"optimizer": "muon"}},
    "8 bits": {"training": {"optimizer": "adamw_8bit"}},
}
TWO: dict[str, dict[str, Any]] = {
    "two ranks": {},
    "two ranks, one row at a time": {"training": {"ppo_micro_batch_size_per_device": 1}},
    "two ranks, dynamic": {"model": {"use_remove_padding": True}, "training": DYNAMIC},
    "two replicas": {"training": {"fsdp": {"fsdp_size": 1}}},
    "two replicas, one row at a time": {"training": {"fsdp": {"fsdp_size": 1}, "ppo_micro_batch_size_per_device": 1}},
    "context parallel": {"model": {"use_remove_padding": True}, "training": {"context_parallel_size": 2}},
    "two ranks, adapters": {"model": {"lora": {"rank": 4}}},
    "two ranks, dora": {"model": {"lora": {"rank": 4, "use_dora": True}}},
    "two ranks, muon": {"training": {"optimizer": "muon"}},
    "two ranks, 8 bits": {"training": {"optimizer": "adamw_8bit"}},
    "two replicas, 8 bits": {"training": {"optimizer": "adamw_8bit", "fsdp": {"fsdp_size": 1}}},
    "two replicas, muon": {"training": {"optimizer": "muon", "fsdp": {"fsdp_size": 1}}},
}
FOUR: dict[str, dict[str, Any]] = {
    "four ranks": {},
    "four ranks, dynamic": {"model": {"use_remove_padding": True}, "training": DYNAMIC},
    "two replicas on two ranks each": {"training": {"fsdp": {"fsdp_size": 2}}},
    "context parallel on two of four": {
        "model": {"use_remove_padding": True},
        "training": {"context_parallel_size": 2},
    },
}
VARIANTS = {1: ALONE, 2: TWO, 4: FOUR}
"""Variants by number of ranks."""

TOPK = 4
VOCABULARY = 256
"""Tokens of a teacher's distribution in the loss. The tiny models have this many tokens or more."""
Steps = dict[str, list[float]]


def train(model: str, ranks: int) -> dict[str, Steps]:
    """Run all variants of a number of ranks in separate processes. Return the results of rank 0."""
    return run_ranks(one_rank, [(model, rank, ranks) for rank in range(ranks)])[0]


@pytest.fixture(scope="module")
def runs(tiny_model: str) -> dict[str, Steps]:
    return {name: steps for ranks in VARIANTS for name, steps in train(tiny_model, ranks).items()}


@pytest.mark.slow
@pytest.mark.parametrize("variant", [*ALONE, *TWO, *FOUR])
def test_ten_steps_are_the_same(runs: dict[str, Steps], variant: str) -> None:
    expected = runs[next((name for name in ("adapters", "dora", "muon", "8 bits") if name in variant), "reference")]
    assert expected["grad_norm"][0] > 1e-3
    assert abs(expected["critic/vf_loss"][0] - expected["critic/vf_loss"][-1]) > 1e-2
    for name, steps in runs[variant].items():
        assert steps == pytest.approx(expected[name], rel=RELATIVE_TOLERANCE, abs=ABSOLUTE_TOLERANCE), name


def one_rank(files: str, rank: int, ranks: int) -> dict[str, Steps]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    join(rank, ranks)
    variants = VARIANTS[ranks]
    results = {
        name: run_plain(files) if name == "plain" else run_sharded(files, rank, **variants[name]) for name in variants
    }
    dist.destroy_process_group()
    return results


def make_experience() -> Any:
    import torch

    from rlt_trainer.batches.sequences import Experience, Sequences

    generator = torch.Generator().manual_seed(0)
    lengths = [3, 1, 5, 2, 4, 4, 1, 6]
    sequences = Sequences.pad(
        [[40 + row] * (1 + row % 3) for row in range(len(lengths))],
        [torch.randint(256, (length,), generator=generator).tolist() for length in lengths],
        pad_token_id=0,
        chosen=[[position != 1 for position in range(length)] for length in lengths],
    )
    shape = sequences.responses.shape
    old, ref, values, returns = (torch.randn(shape, generator=generator) * 0.1 for _ in range(4))
    advantages = torch.randn(len(lengths), 1, generator=generator).expand(shape)
    teacher = torch.randn(*shape, VOCABULARY, generator=generator).log_softmax(-1).topk(TOPK)
    weights = torch.rand(shape, generator=generator) * (torch.rand(shape, generator=generator) < 0.6)  # top entropy: 0
    return Experience(
        sequences,
        old - 5.5,
        advantages,
        ref_log_probs=ref - 5.5,
        weights=weights,
        values=values,
        returns=returns + 1,
        teacher_log_probs=teacher.values,
        teacher_ids=teacher.indices.int(),
    )


def make_algorithm() -> Any:
    from rlt_api.blocks.algorithm import Algorithm, Critic, Distillation

    return Algorithm(
        kl_loss_coef=0.1,
        entropy_coeff=0.01,
        loss_agg_mode="seq-mean-token-mean",
        critic=Critic(learning_rate=1e-3),
        distillation=Distillation(model_path="/teacher", loss_mode="forward_kl_topk", topk=TOPK),
    )


def run_sharded(
    files: str, rank: int, *, model: dict[str, Any] | None = None, training: dict[str, Any] | None = None
) -> Steps:
    """Return losses over all ranks and gradient norms of actor and critic per step, and norms of adapters."""
    import torch
    import torch.distributed as dist

    from rlt_api.blocks.algorithm import Critic as CriticBlock
    from rlt_api.blocks.model import Model
    from rlt_api.blocks.training import Training
    from rlt_trainer.batches.sequences import MiniBatch
    from rlt_trainer.policy.actor import Actor
    from rlt_trainer.policy.critic import Critic
    from rlt_trainer.policy.mesh import create_mesh, data_parallel_size

    ranks = dist.get_world_size()
    block = Training.model_validate({"total_steps": STEPS, "learning_rate": 1e-3, **(training or {})})
    options = Model.model_validate(model or {})
    critic_block = CriticBlock(
        learning_rate=1e-3,
        use_remove_padding=options.use_remove_padding,
        enable_gradient_checkpointing=options.enable_gradient_checkpointing,
    )
    parts = data_parallel_size(block, ranks)
    whole = make_experience()
    rows = len(whole) // parts
    part = rank * parts // ranks
    batch = MiniBatch(
        whole.rows(slice(part * rows, (part + 1) * rows)),
        total_tokens=int(whole.sequences.response_mask.sum()),
        total_sequences=len(whole),
    )
    common: dict[str, Any] = {
        "model": options,
        "dtype": torch.float32,
        "mesh": create_mesh("cpu", block, ranks),
        "algorithm": make_algorithm().model_copy(update={"critic": critic_block}),
        "training": block,
        "max_response_length": 6,
    }
    actor = Actor(files, **common, temperature=0.9)
    critic = Critic(files, **common)
    results = [(actor.update(batch), critic.update(batch)) for _ in range(STEPS)]
    names = [*results[0][0].shares, *results[0][1].shares]
    losses = torch.tensor([[(one.shares | two.shares)[name] for name in names] for one, two in results])
    dist.all_reduce(losses)
    return {
        **dict(zip(names, losses.T.tolist(), strict=True)),
        "grad_norm": [one.grad_norm for one, _ in results],
        "critic/grad_norm": [two.grad_norm for _, two in results],
        **(norms(actor) if options.lora else {}),
    }


def norms(actor: Any) -> Steps:
    """Return the norm of each merged full weight, and of each saved adapter tensor."""
    import torch.distributed as dist
    from safetensors.torch import load_file

    from rlt_trainer.policy.lora import save_adapter

    merged = [float(weight.norm()) for _, weight in actor.gather_weights()]
    assert merged
    with TemporaryDirectory() as folder:
        save_adapter(actor.model, Path(folder))
        saved = load_file(Path(folder) / "adapter_model.safetensors") if dist.get_rank() == 0 else {}
    return {"merged": merged, "saved": [float(each.norm()) for each in saved.values()]}


def run_plain(files: str) -> Steps:
    """Return the policy losses of a plain model on one device, with full logits and one batch."""
    import torch
    from torch.nn.utils import clip_grad_norm_

    from rlt_api.blocks.training import Training
    from rlt_trainer.policy.model import load_model
    from rlt_trainer.policy.policy_objective import PolicyObjective

    block = Training(total_steps=STEPS)
    batch = make_experience()
    objective = PolicyObjective(make_algorithm(), max_response_length=6)
    model = load_model(files, torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=block.weight_decay)
    sequences = batch.sequences
    mask = torch.cat([sequences.prompt_mask, sequences.response_attention], -1)
    tokens = torch.cat([sequences.prompts, sequences.responses], -1)
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
    width = sequences.responses.shape[1]
    losses = ("actor/pg_loss", "actor/kl_loss", "actor/entropy_loss", "distillation/loss")
    steps: Steps = {name: [] for name in (*losses, "grad_norm")}
    assert batch.teacher_ids is not None
    for _ in range(STEPS):
        logits = model(input_ids=tokens, attention_mask=mask.long(), position_ids=positions).logits
        chosen = torch.distributions.Categorical(logits=logits[:, -width - 1 : -1] / 0.9)
        counts = {"total_tokens": int(sequences.response_mask.sum()), "total_sequences": len(batch)}
        log_probs = chosen.log_prob(sequences.responses)  # type: ignore[no-untyped-call]
        entropy = chosen.entropy()  # type: ignore[no-untyped-call]
        top = chosen.logits.gather(-1, batch.teacher_ids.long())
        loss, shares = objective.compute_share(log_probs, entropy, batch, **counts, top_log_probs=top)
        loss.backward()  # type: ignore[no-untyped-call]
        steps["grad_norm"].append(float(clip_grad_norm_(model.parameters(), block.grad_clip)))
        optimizer.step()
        optimizer.zero_grad()
        for name in losses:
            steps[name].append(float(shares[name]))
    return steps
