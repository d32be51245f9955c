"""The engine of verl's arguments, for the preflight check `engine`. Pure."""

from __future__ import annotations

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.devices import TENSOR_PARALLEL, read_verl_number
from rlt_api.frameworks.preflight import ENGINES, reject_engine
from rlt_pod.preflight.expected import Engine, NotPossible

ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"
DTYPE = f"{ROLLOUT}.dtype"
VLLM_NAMES = {
    "max_model_len": "max_model_len",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "enforce_eager": "enforce_eager",
}
"""verl's name below `ROLLOUT` -> the argument of vllm.LLM."""
SGLANG_NAMES = {"max_model_len": "context_length", "gpu_memory_utilization": "mem_fraction_static"}
"""The same for sglang.Engine."""
SHARE = 0.5
"""The default of gpu_memory_utilization: rollout.yaml in verl 0.9.1."""


def uses_bfloat16(program: Program) -> bool:
    """Return whether the engine computes in bfloat16, verl's default."""
    return program.values.get(DTYPE, "bfloat16") == "bfloat16"


def build_engine(program: Program) -> Engine | NotPossible:
    """Build the engine, or the reason why it is not known."""
    values = program.values
    name = str(values.get(f"{ROLLOUT}.name", "vllm"))
    model = values.get(f"{MODEL}.path")
    if name not in ENGINES:
        return reject_engine(f"The engine {name} is neither {' nor '.join(ENGINES)}.")
    if not isinstance(model, str):
        return reject_engine(f"{MODEL}.path is not in the arguments.")
    size = read_verl_number(program, TENSOR_PARALLEL)
    if size is None:
        return reject_engine(f"{TENSOR_PARALLEL} is not in the arguments.")
    given = {f"{ROLLOUT}.gpu_memory_utilization": SHARE, **values}
    options = {
        argument: given[key]
        for verl_name, argument in (VLLM_NAMES if name == "vllm" else SGLANG_NAMES).items()
        if (key := f"{ROLLOUT}.{verl_name}") in given
    }
    options |= {
        "dtype": values.get(DTYPE, "bfloat16"),
        "trust_remote_code": values.get(f"{MODEL}.trust_remote_code", False),
    }
    return Engine(name, model, size, {key: value for key, value in options.items() if value is not None})
