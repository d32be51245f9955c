"""Results of TRL. Run in an environment with trl 1.16.0: `python trl_oracle.py OUT.json`.

TRL's formulas are inside the methods of its trainers, so this script calls those methods of real trainers with a tiny
random model: for advantages with a reward function that returns REWARDS, for losses and preferences with the
log-probabilities of oracle_inputs.py instead of the model's.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from oracle_inputs import ROWS, random_inputs, write
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.experimental.gkd import GKDTrainer

INPUTS = random_inputs()
GROUP = 4
REWARDS = [0.0, 1.0, 1.0, 0.25, 0.5, 0.5, 0.5, 0.5, -1.0, None, 2.0, 0.75, None, 3.0, None, None]
"""Four groups of four. None: the reward failed. The values are exact in float32, which TRL uses."""
PROMPTS = [[{"role": "user", "content": str(row // GROUP)}] for row in range(len(REWARDS))]
LENGTH = 12
"""max_completion_length"""
BETA = 0.0625


def make_trainer(kind: type[Any], config: type[Any], *, data: dict[str, Any] | None = None, **options: Any) -> Any:
    """data: the columns of pairs. None: a trainer that generates, with prompts and rewards."""
    vocabulary = {"[PAD]": 0, "[EOS]": 1, "[UNK]": 2, "0": 3, "1": 4, "2": 5, "3": 6}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(vocabulary), **shape))
    if data is None:
        generating = {"reward_funcs": lambda completions, **_: REWARDS}
        options |= {"num_generations": GROUP, "max_completion_length": LENGTH}
    else:
        generating = {"ref_model": LlamaForCausalLM(model.config)}
    with tempfile.TemporaryDirectory() as folder:
        return kind(
            model=model,
            **generating,
            args=config(
                output_dir=folder,
                per_device_train_batch_size=len(REWARDS),
                use_cpu=True,
                bf16=False,
                report_to="none",
                **options,
            ),
            train_dataset=Dataset.from_dict(data or {"prompt": PROMPTS}),
            processing_class=tokenizer,
        )


def advantages() -> list[dict[str, Any]]:
    configs: list[tuple[str, type[Any], type[Any], dict[str, Any], dict[str, Any]]] = [
        ("grpo", GRPOTrainer, GRPOConfig, {"scale_rewards": "group"}, {}),
        ("grpo", GRPOTrainer, GRPOConfig, {"scale_rewards": "none"}, {"norm_by_std": False}),
        ("rloo", RLOOTrainer, RLOOConfig, {"beta": 0.0}, {}),
    ]
    cases = []
    for name, kind, config, options, settings in configs:
        trainer = make_trainer(kind, config, **options)
        trainer.model.train()
        output = trainer._generate_and_score_completions([{"prompt": prompt} for prompt in PROMPTS])
        cases.append({"estimator": name, "settings": settings, "advantages": output["advantages"].double()})
    return cases


def kl_in_reward() -> dict[str, Any]:
    """RLOO's KL term with log-probabilities exact in float32. TRL evaluates the policy before the reference."""
    trainer = make_trainer(RLOOTrainer, RLOOConfig, beta=0.0)  # otherwise it loads the reference from files
    trainer.beta = BETA
    trainer.ref_model = trainer.model
    generator = torch.Generator().manual_seed(20261121)
    log_probs, ref_log_probs = (-torch.randint(128, (len(REWARDS), LENGTH), generator=generator) / 64 for _ in range(2))
    evaluations = iter((log_probs, ref_log_probs))
    trainer._get_per_token_logps_and_entropies = lambda model, ids, mask, kept, *_, **__: (
        next(evaluations)[:, :kept],
        None,
        None,
    )
    output = trainer._generate_and_score_completions([{"prompt": prompt} for prompt in PROMPTS])
    mask = output["completion_mask"].bool()
    return {
        "beta": BETA,
        "mask": mask,
        "log_probs": log_probs[:, : mask.shape[1]],
        "ref_log_probs": ref_log_probs[:, : mask.shape[1]],
        "advantages": output["advantages"].double(),
    }


def distillation() -> dict[str, Any]:
    """GKD's loss with beta 1: the reverse KL of each next token over the whole vocabulary."""
    generator = torch.Generator().manual_seed(20261123)
    student, teacher = (torch.randn(1, 4, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    student.requires_grad_()
    value = GKDTrainer.generalized_jsd_loss(student, teacher, beta=1, temperature=0.8, reduction="sum")
    value.backward()
    logits = {"student": student.detach()[0], "teacher": teacher[0]}
    return {**logits, "temperature": 0.8, "value": value.item(), "gradient": student.grad[0]}


def preferences() -> dict[str, Any]:
    """DPO's loss and metrics with the log-probabilities of oracle_inputs.py: five chosen, then five rejected rows."""
    log_probs = INPUTS["log_probs"].clone().requires_grad_()
    trainer = make_trainer(DPOTrainer, DPOConfig, data={"prompt": ["0"], "chosen": ["1"], "rejected": ["2"]})
    trainer.ref_model = lambda **_: SimpleNamespace(log_probs=INPUTS["ref_log_probs"] * INPUTS["mask"])
    trainer.model.train()
    zeros = torch.zeros_like(log_probs)
    outputs = SimpleNamespace(
        log_probs=log_probs * INPUTS["mask"], entropy=zeros, mean_logits=zeros, is_top1=zeros.bool()
    )
    mask = torch.cat([torch.zeros(ROWS, 1), INPUTS["mask"]], dim=1).long()
    batch = {"input_ids": torch.ones_like(mask), "attention_mask": torch.ones_like(mask), "completion_mask": mask}
    value = trainer._compute_loss(lambda **_: outputs, batch, return_outputs=False)
    value.backward()
    metrics = {name: values[0] for name, values in trainer._metrics["train"].items() if name.startswith("rewards/")}
    return {"beta": trainer.beta, "value": value.item(), "gradient": log_probs.grad, "metrics": metrics}


def losses() -> list[dict[str, Any]]:
    trainer = make_trainer(GRPOTrainer, GRPOConfig)
    cases: list[dict[str, Any]] = []
    for kind, level, old, beta, weighted in product(
        ["grpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo"],
        ["token", "sequence"],
        ["old_log_probs", "far_log_probs"],
        [0.0, 0.04],
        [False, True],
    ):
        if level == "sequence" and (kind not in ("grpo", "dapo", "luspo") or beta or old == "far_log_probs"):
            continue
        if level == "token" and kind == "luspo":
            continue  # TRL warns against it
        case: dict[str, Any] = {"loss_type": kind, "level": level, "old": old, "beta": beta, "weighted": weighted}
        cases.append({**case, **loss(trainer, **case)})
        if kind == "grpo" and level == "token":
            cases.append({**case, "delta": 3.0, **loss(trainer, delta=3.0, **case)})
    return cases


def top_entropy() -> dict[str, Any]:
    """Losses of the tokens with the highest entropy. Two tokens have the same one."""
    generator = torch.Generator().manual_seed(20261127)
    entropies = torch.rand(INPUTS["mask"].shape, generator=generator, dtype=torch.float64).round(decimals=2) * 4
    trainer = make_trainer(GRPOTrainer, GRPOConfig)
    cases = []
    for kind, quantile, beta, weighted in product(["grpo", "dapo", "cispo"], [0.2, 0.5], [0.0, 0.04], [False, True]):
        case = {"loss_type": kind, "level": "token", "old": "old_log_probs", "beta": beta, "weighted": weighted}
        found = loss(trainer, entropies=entropies, quantile=quantile, **case)
        cases.append({**case, "quantile": quantile, **found})
    masks = {
        str(quantile): trainer.get_high_entropy_mask(entropies, INPUTS["mask"], 1 - quantile)
        for quantile in (0.01, 0.2, 0.5, 0.9)
    }
    return {"entropies": entropies, "masks": masks, "losses": cases}


def loss(
    trainer: Any,
    *,
    loss_type: str,
    level: str,
    old: str,
    beta: float,
    weighted: bool,
    delta: float | None = None,
    entropies: torch.Tensor | None = None,
    quantile: float = 1.0,
) -> dict[str, Any]:
    log_probs = INPUTS["log_probs"].clone().requires_grad_()
    values = torch.zeros_like(log_probs) if entropies is None else entropies
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (log_probs, values, None)
    trainer.top_entropy_quantile = quantile
    trainer.loss_type = loss_type
    trainer.importance_sampling_level = level
    trainer.beta = beta
    trainer.args.delta = delta
    trainer.epsilon_low = 0.1
    trainer.epsilon_high = 5.0 if loss_type == "cispo" else 0.3
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = weighted
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = 1
    ids = torch.ones(ROWS, 1, dtype=torch.int64)
    value = trainer._compute_loss(
        trainer.model,
        {
            "prompt_ids": ids,
            "prompt_mask": ids,
            "completion_ids": torch.ones_like(log_probs, dtype=torch.int64),
            "completion_mask": INPUTS["mask"].double(),
            "advantages": INPUTS["advantages"][:, 0],
            "old_per_token_logps": INPUTS[old],
            "ref_per_token_logps": INPUTS["ref_log_probs"],
            "importance_sampling_ratio": INPUTS["weights"],
            "num_items_in_batch": INPUTS["mask"].sum(),
        },
    )
    value.backward()
    return {"value": value.item(), "gradient": log_probs.grad}


if __name__ == "__main__":
    torch.manual_seed(0)
    write(
        Path(sys.argv[1]),
        {
            "rewards": REWARDS,
            "length": LENGTH,
            "bias_correction": GRPOConfig(output_dir="unused", use_cpu=True, bf16=False).use_bias_correction_kl,
            "advantages": advantages(),
            "kl_in_reward": kl_in_reward(),
            "losses": losses(),
            "top_entropy": top_entropy(),
            "distillation": distillation(),
            "preferences": preferences(),
        },
    )
