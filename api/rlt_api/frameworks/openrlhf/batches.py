"""The mini-batch of a job with framework openrlhf, as DeepSpeed divides it."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from rlt_api.findings.finding import Finding
from rlt_api.frameworks.run import count_shares
from rlt_api.rules.batches import RESPONSES, SHARES, change_mini_batch
from rlt_api.rules.unsupported import TYPE
from rlt_api.spec.job_spec import RLTrainingJobSpec


def validate_openrlhf_batches(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.type openrlhf needs a mini-batch whose responses the devices / contextParallelSize divide: DeepSpeed's
    train_batch_size is a multiple of the micro-batch x the actors."""
    shares = count_shares(spec)
    prompts = spec.training.ppo_mini_batch_size or spec.training.train_batch_size
    responses = spec.rollout.responses_per_prompt
    if prompts * responses % shares:
        message = (
            f"x responsesPerPrompt {responses} = {prompts * responses} responses are not divisible by the {shares} "
            "actors, as DeepSpeed asserts"
        )
        unit = shares // gcd(shares, responses)
        yield change_mini_batch(spec, unit, message, "batch-divisibility", (TYPE, RESPONSES, *SHARES))


RULES = (validate_openrlhf_batches,)
