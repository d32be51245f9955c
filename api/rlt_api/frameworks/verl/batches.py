"""The batches of a job with framework verl: what its command line gives, by verl's own rules."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import replaceable
from rlt_api.frameworks.verl.rules import validate_verl_fields
from rlt_api.frameworks.verl.settings import parse_command
from rlt_api.frameworks.verl.sizes import BATCH, count_program_shares, list_batch_problems
from rlt_api.rules.batches import RESPONSES, SHARES, TRAIN, change_mini_batch
from rlt_api.spec.job_spec import RLTrainingJobSpec


def validate_verl_batches(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.type verl needs responses of a step and of a mini-batch that its devices and its data-parallel shares
    divide: devices / contextParallelSize, or with model_engine=megatron devices / (TP x PP x CP)."""
    if spec.model is None or spec.data is None:
        return
    batch = spec.training.train_batch_size
    mini = spec.training.ppo_mini_batch_size
    if (mini and batch % mini) or next(validate_verl_fields(spec), None):
        return
    program = parse_command(spec)
    responses = spec.rollout.responses_per_prompt
    shares = count_program_shares(program) or 1
    involved = ("spec.framework.type", RESPONSES, *SHARES)
    rule = "batch-divisibility"
    for problem in list_batch_problems(program):
        if problem.values and problem.key == BATCH and not problem.replaced:
            fitting = [each for each in problem.values if each % (mini or 1) == 0]
            yield replaceable(TRAIN, batch, problem.message, *fitting, rule=rule, involved=involved)
        else:
            unit = shares // gcd(shares, responses)
            yield change_mini_batch(spec, unit, problem.message, rule, involved)
        return


RULES = (validate_verl_batches,)
