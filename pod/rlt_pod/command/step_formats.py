"""Step lines of slime, Miles, NeMo-RL, SkyRL, prime-rl and TRL, with verl's names of their metrics. Pure.

Most of them write a step in several lines: a reader remembers what it has read, and returns the step once.

slime and Miles (slime/observability/train_metric_utils.py, slime/backends/megatron_utils/model.py): `rollout N: {…}`,
`step M: {…}` for each optimizer step, and `perf N: {…}` after the training, with dictionaries. Rollouts begin at 0. A
step of the job is a rollout.
NeMo-RL (nemo_rl/algorithms/grpo.py): `=== Step 3/500 ===`, and then a line for each metric.
SkyRL (skyrl/train/utils/tracking.py): `Step N: `, and then the lines of a dictionary, with texts as values.
prime-rl (src/prime_rl/orchestrator/orchestrator.py, trainer/rl/train.py): `Step N | 3.2s | Reward 0.5 | …`.
TRL (transformers.Trainer): a dictionary without the step, which the progress bar has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Step = tuple[int, dict[str, float]]  # completed steps, and the metrics of this step by verl's names

_NUMBER = r"-?(?:[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|inf|nan)"
_PAIR = re.compile(rf"'(?P<name>[^']+)': (?:np\.\w+\(|tensor\()?'?(?P<value>{_NUMBER})'?(?=[,}})]|$)")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_SLIME = re.compile(
    r"(?:- |^)(?P<kind>rollout|perf|step) (?P<step>[0-9]{1,18}): (?P<metrics>\{'(?:rollout|perf|train)/.*\})"
)
_NEMO_STEP = re.compile(r"={10} Step (?P<step>[0-9]{1,18})/(?P<total>[0-9]{1,18}) ={10}")
_NEMO_METRIC = re.compile(rf"[•-] (?P<name>[A-Z][^:]{{2,40}}): (?P<value>{_NUMBER})s?(?: |$|\()")
_SKYRL_STEP = re.compile(r"(?:- |\| |^)Step (?P<step>[0-9]{1,18}): *$")
_SKYRL_LINE = re.compile(r"[{ ]'[\w./@-]+': ")
_PRIME = re.compile(
    r"(?:SUCCESS\s+|^)Step (?P<step>[0-9]{1,18}) \| +(?P<time>[^| ][^|]*) \| (?P<metrics>(?:Reward|Loss) .*)"
)
_PRIME_METRIC = re.compile(rf"(?P<name>[A-Z][A-Za-z. -]*?) (?P<value>{_NUMBER})%?(?: tokens/s| GiB)?$")
_PRIME_TIME = re.compile(r"(?<![0-9.])(?P<value>[0-9.]+)(?P<unit>ms|[dhms])")
_TRL = re.compile(r"^[^{]*(?P<metrics>\{'loss': [^{}]*\})")
_TRL_REWARDS = ("'reward': ", "'rewards/margins': ")
_TQDM = re.compile(r"^ *[0-9]+%\|[^|]*\| *(?P<step>[0-9]{1,18})/(?P<total>[0-9]{1,18}) \[")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

NAMES: Mapping[str, str] = {
    # slime and Miles
    "rollout/raw_reward": "critic/rewards/mean",
    "rollout/response_len/mean": "response_length/mean",
    "rollout/response_lengths": "response_length/mean",
    "rollout/entropy": "actor/entropy",
    "train/kl_loss": "actor/kl_loss",
    "train/pg_loss": "actor/pg_loss",
    "train/entropy_loss": "actor/entropy",
    "train/grad_norm": "actor/grad_norm",
    "train/pg_clipfrac": "actor/pg_clipfrac",
    "train/ppo_kl": "actor/ppo_kl",
    "train/lr-pg_0": "actor/lr",
    "perf/step_time": "timing_s/step",
    # NeMo-RL, whose loss has the same name in prime-rl
    "Loss": "actor/pg_loss",
    "Avg Reward": "critic/rewards/mean",
    "Avg Total Reward": "critic/rewards/mean",
    "Mean Generation Length": "response_length/mean",
    "Total step time": "timing_s/step",
    "E2E (Tokens/sec)": "perf/tokens_per_second",
    "Generation KL Error": "actor/generation_kl_error",
    # SkyRL
    "reward/avg_raw_reward": "critic/rewards/mean",
    "loss/avg_final_rewards": "critic/rewards/mean",
    "generate/avg_num_tokens": "response_length/mean",
    "policy/policy_loss": "actor/pg_loss",
    "policy/final_loss": "actor/loss",
    "policy/policy_kl": "actor/kl_loss",
    "policy/policy_entropy": "actor/entropy",
    "policy/ppo_clip_ratio": "actor/pg_clipfrac",
    "policy/raw_grad_norm": "actor/grad_norm",
    "policy/grad_norm": "actor/grad_norm",
    "policy/policy_lr": "actor/lr",
    "timing/step": "timing_s/step",
    # prime-rl
    "Reward": "critic/rewards/mean",
    "Entropy": "actor/entropy",
    "Grad. Norm": "actor/grad_norm",
    "Mismatch KL": "actor/mismatch_kl",
    "LR": "actor/lr",
    "Throughput": "perf/tokens_per_second",
    # TRL
    "reward": "critic/rewards/mean",
    "kl": "actor/kl_loss",
    "entropy": "actor/entropy",
    "completions/mean_length": "response_length/mean",
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "learning_rate": "actor/lr",
    "clip_ratio/region_mean": "actor/pg_clipfrac",
    "step_time": "timing_s/step",
}
"""Name in the output -> verl's name. Other names stay. perf/tokens_per_second is of all accelerators."""


@dataclass(frozen=True)
class Reader:
    """What the lines so far have shown. `read` returns the next state."""

    kind: str = ""
    """The format of the step that the lines are in: slime, nemo or skyrl. Empty outside of one."""
    step: int = 0
    """Its number, in completed steps."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Its metrics."""
    total: int | None = None
    """Number of steps in the latest line with one. None if unknown."""
    bar: tuple[int, int] | None = None
    """Step and total of the latest progress bar without a name: TRL's."""


def read(reader: Reader, line: str) -> tuple[Reader, Step | None]:
    """Read one line of output. Returns the step that is complete with this line, or nothing."""
    plain = _COLOR.sub("", line).rstrip()
    if bar := _TQDM.search(plain):
        return replace(reader, bar=(int(bar["step"]), int(bar["total"]))), None
    if slime := _SLIME.search(plain):
        return _read_slime(reader, slime["kind"], int(slime["step"]), _pairs(slime["metrics"]))
    if nemo := _NEMO_STEP.search(plain):
        return replace(reader, kind="nemo", step=int(nemo["step"]), metrics={}, total=int(nemo["total"])), None
    if prime := _PRIME.search(plain):
        return reader, _read_prime(prime)
    if (trl := _TRL.search(plain)) and any(reward in trl["metrics"] for reward in _TRL_REWARDS):
        step, total = reader.bar or (0, None)
        return replace(reader, total=total), (step, _rename(_pairs(trl["metrics"]))) if step else None
    if skyrl := _SKYRL_STEP.search(plain):
        return replace(reader, kind="skyrl", step=int(skyrl["step"]), metrics={}), None
    if reader.kind == "nemo":
        return _read_nemo(reader, plain)
    if reader.kind == "skyrl" and _SKYRL_LINE.search(plain):
        reader = replace(reader, metrics={**reader.metrics, **_rename(_pairs(plain))})
        return _end(reader) if plain.endswith("}") else (reader, None)
    return reader, None


def _end(reader: Reader) -> tuple[Reader, Step | None]:
    return replace(reader, kind="", metrics={}), (reader.step, dict(reader.metrics))


def _read_slime(reader: Reader, kind: str, number: int, metrics: Mapping[str, float]) -> tuple[Reader, Step | None]:
    """`rollout N` begins a step, which ends with the performance of its training, or with the next rollout. The
    performance of the generation, which may be ahead, has no time of a training."""
    if kind == "rollout":
        ended = _end(reader)[1] if reader.kind == "slime" else None
        return replace(reader, kind="slime", step=number + 1, metrics=_rename(metrics)), ended
    if reader.kind != "slime" or (kind == "perf" and "perf/train_time" not in metrics):
        return reader, None
    reader = replace(reader, metrics={**reader.metrics, **_rename(metrics)})
    return _end(reader) if kind == "perf" else (reader, None)


def _read_nemo(reader: Reader, line: str) -> tuple[Reader, Step | None]:
    """The metrics end with the time of the step; the throughput of all accelerators follows."""
    found = _NEMO_METRIC.search(line)
    if found is None or found["name"] not in NAMES:
        return reader, None
    named = {NAMES[found["name"]]: float(found["value"])}
    if found["name"] == "E2E (Tokens/sec)":
        return replace(reader, kind=""), (reader.step, named)
    reader = replace(reader, metrics={**reader.metrics, **named})
    if found["name"] != "Total step time":
        return reader, None
    return replace(reader, metrics={}), (reader.step, dict(reader.metrics))


def _read_prime(found: re.Match[str]) -> Step:
    """The orchestrator's line has the reward, the trainer's the loss."""
    metrics = {}
    for part in found["metrics"].split(" | "):
        pair = _PRIME_METRIC.match(part)
        if pair:
            metrics[NAMES.get(pair["name"], pair["name"])] = float(pair["value"])
    seconds = sum(float(each["value"]) * _SECONDS[each["unit"]] for each in _PRIME_TIME.finditer(found["time"]))
    if "critic/rewards/mean" in metrics and seconds:
        metrics["timing_s/step"] = seconds
    return int(found["step"]), metrics


def _pairs(text: str) -> dict[str, float]:
    return {pair["name"]: float(pair["value"]) for pair in _PAIR.finditer(text)}


def _rename(metrics: Mapping[str, float]) -> dict[str, float]:
    return {NAMES.get(name, name): value for name, value in metrics.items()}
