"""Shares and lengths that verl's engines take: tokens of a sequence, of a micro-batch, and of the model."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.devices import read_verl_number
from rlt_api.frameworks.command.engine_limits import list_context_problems, list_share_problems
from rlt_api.frameworks.command.problem import Problem
from rlt_api.frameworks.verl.parallel import read_engine, read_sizes

MODEL = "actor_rollout_ref.model.path"
ROLLOUT = "actor_rollout_ref.rollout"
UTILIZATION = f"{ROLLOUT}.gpu_memory_utilization"
MAX_LENGTH = f"{ROLLOUT}.max_model_len"
LENGTHS = {
    f"{ROLLOUT}.prompt_length": "data.max_prompt_length",
    f"{ROLLOUT}.response_length": "data.max_response_length",
}
"""Lengths of the engine -> where their defaults are, both in tokens."""
TRAIN_TOKENS = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
DYNAMIC = "actor_rollout_ref.actor.use_dynamic_bsz"
"""The default of the other switches."""
TOKENS = {
    DYNAMIC: TRAIN_TOKENS,
    f"{ROLLOUT}.log_prob_use_dynamic_bsz": f"{ROLLOUT}.log_prob_max_token_len_per_gpu",
    "actor_rollout_ref.ref.log_prob_use_dynamic_bsz": "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu",
    "critic.use_dynamic_bsz": "critic.ppo_max_token_len_per_gpu",
}
"""Micro-batches of tokens -> their maximum on one device."""
DEFAULT_TOKENS = 16384
CRITIC_TOKENS = 32768


def list_length_problems(program: Program) -> Iterator[Problem]:
    """List the problems of the engine's share of the device and of the lengths."""
    yield from list_share_problems(program, UTILIZATION)
    keys = [key if key in program.given else default for key, default in LENGTHS.items()]
    prompt, response = (read_verl_number(program, key) for key in keys)
    if prompt and response:
        yield from list_context_problems(program, MODEL, MAX_LENGTH, list(zip(keys, (prompt, response), strict=True)))
        yield from _compare_with_micro_batches(program, prompt + response)


def _compare_with_micro_batches(program: Program, longest: int) -> Iterator[Problem]:
    """A micro-batch of tokens holds the longest sequence, with sequence parallelism on several devices."""
    sizes = read_sizes(program.values)
    engine = read_engine(program.values)
    parallel = [size for key, size in sizes.items() if engine in ("dp", "veomni") or "context" in key]
    devices = parallel[0] if parallel else 1
    unknown = {key for key in program.given if key not in program.values}
    has_critic = program.values.get("algorithm.adv_estimator", "gae") == "gae"
    for switch, key in TOKENS.items():
        is_dynamic = program.values.get(switch, program.values.get(DYNAMIC))
        if is_dynamic is not True or unknown & {key, TRAIN_TOKENS} or (key.startswith("critic") and not has_critic):
            continue
        default = CRITIC_TOKENS if key.startswith("critic") else program.values.get(TRAIN_TOKENS, DEFAULT_TOKENS)
        tokens = program.values.get(key, default)
        if not isinstance(tokens, int) or tokens * devices >= longest:
            continue
        shown = next((each for each in (key, TRAIN_TOKENS) if each in program.given), switch)
        on = f" on {devices} devices" if devices > 1 else ""
        message = (
            f"{key.rpartition('.')[2]} {tokens}{on} is less than a prompt with its response, {longest} tokens, which "
            f"verl asserts for each batch; use {-(-longest // devices)} or more"
        )
        yield Problem(shown, message)
        if shown == TRAIN_TOKENS:  # the others follow it
            return
