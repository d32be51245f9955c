"""The mini-batch of a job with framework roll, by the layout of the role that trains."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from rlt_api.findings.finding import Finding
from rlt_api.frameworks.command.devices import count_devices
from rlt_api.frameworks.roll.rules import validate_roll_fields
from rlt_api.frameworks.roll.settings import build_config
from rlt_api.frameworks.roll.values import get_block, read_overrides
from rlt_api.frameworks.run import Run
from rlt_api.rules.batches import RESPONSES, SHARES, change_mini_batch
from rlt_api.rules.unsupported import TYPE
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.command.roll_layout import count_shares, list_contradictions, parse_devices

ROLE = "actor_train"


def validate_roll_batches(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.type roll needs a mini-batch whose responses the shares of actor_train divide: its devices /
    contextParallelSize, with Megatron devices / (TP x PP x CP). ROLL's mini-batch is per_device_train_batch_size x
    gradient_accumulation_steps x shares."""
    if spec.model is None or spec.data is None:
        return
    chosen = get_block(read_overrides(spec.framework.overrides), ROLE)
    if "training_args" in chosen or next(validate_roll_fields(spec), None):  # the overrides give the sizes
        return
    config = build_config(spec, Run("", "", ""))
    if next(list_contradictions(config, count_devices(spec.cluster.workers)), None):  # another rule names them
        return
    role = get_block(config, ROLE)
    devices = parse_devices(role.get("device_mapping"))
    shares = count_shares(role, len(devices)) if devices else None
    prompts = spec.training.ppo_mini_batch_size or spec.training.train_batch_size
    responses = spec.rollout.responses_per_prompt
    if not shares or prompts * responses % shares == 0:
        return
    message = (
        f"x responsesPerPrompt {responses} = {prompts * responses} responses are not divisible by the {shares} "
        f"data-parallel shares of {ROLE}"
    )
    unit = shares // gcd(shares, responses)
    involved = (TYPE, RESPONSES, *SHARES)
    yield change_mini_batch(spec, unit, message, "batch-divisibility", involved)


RULES = (validate_roll_batches,)
