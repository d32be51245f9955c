"""The engine for the preflight check `engine`: its arguments, from verl's, OpenRLHF's or ROLL's. Pure."""

from __future__ import annotations

from rlt_api.frameworks.command.devices import TENSOR_PARALLEL, read_verl_number
from rlt_api.frameworks.known_programs import Program, find_program
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.children.preflight_roll import build_roll_engine
from rlt_pod.preflight.expected import Engine, NotPossible

ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"
REMEDY = "The stage training starts the engine. Set preflight.command for a program that rlt does not know."
ENGINES = ("vllm", "sglang")
VLLM_NAMES = {
    "max_model_len": "max_model_len",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "enforce_eager": "enforce_eager",
}
"""verl's name below `ROLLOUT` -> the argument of vllm.LLM."""
SGLANG_NAMES = {"max_model_len": "context_length", "gpu_memory_utilization": "mem_fraction_static"}
"""The same for sglang.Engine."""
VERL_SHARE = 0.5
OPENRLHF_SHARE = 0.95
"""Both are defaults of gpu_memory_utilization: rollout.yaml in verl 0.9.1, train_ppo_ray.py in OpenRLHF 0.11.2."""


def build_engine(command: list[str], spec: RLTrainingJobSpec) -> Engine | NotPossible | None:
    """Build the engine of a command, or the reason why it is not known. None: preflight.command replaces the check."""
    program = find_program(command)
    if program is not None:
        engine = _build_verl_engine(program) if program.name == "verl" else _build_openrlhf_engine(program)
    elif spec.framework.type == "roll":
        found = build_roll_engine(spec)
        engine = _reject(found) if isinstance(found, str) else found
    elif spec.preflight.command:
        return None
    else:
        engine = _reject("The program is neither verl nor OpenRLHF.")
    if isinstance(engine, NotPossible):
        return engine
    largest = max((each.accelerator.count for each in spec.cluster.workers if each.accelerator), default=1)
    if engine.tensor_parallel_size > largest:
        size = engine.tensor_parallel_size
        return _reject(f"Its tensor parallel size {size} is larger than the {largest} accelerators of a pod.")
    return engine


def _reject(reason: str) -> NotPossible:
    return NotPossible("engine", "services", reason, REMEDY)


def _build_verl_engine(program: Program) -> Engine | NotPossible:
    values = program.values
    name = str(values.get(f"{ROLLOUT}.name", "vllm"))
    model = values.get(f"{MODEL}.path")
    if name not in ENGINES:
        return _reject(f"The engine {name} is neither {' nor '.join(ENGINES)}.")
    if not isinstance(model, str):
        return _reject(f"{MODEL}.path is not in the arguments.")
    size = read_verl_number(program, TENSOR_PARALLEL)
    if size is None:
        return _reject(f"{TENSOR_PARALLEL} is not in the arguments.")
    given = {f"{ROLLOUT}.gpu_memory_utilization": VERL_SHARE, **values}
    options = {
        argument: given[key]
        for verl_name, argument in (VLLM_NAMES if name == "vllm" else SGLANG_NAMES).items()
        if (key := f"{ROLLOUT}.{verl_name}") in given
    }
    options |= {
        "dtype": values.get(f"{ROLLOUT}.dtype", "bfloat16"),
        "trust_remote_code": values.get(f"{MODEL}.trust_remote_code", False),
    }
    return Engine(name, model, size, {key: value for key, value in options.items() if value is not None})


def _build_openrlhf_engine(program: Program) -> Engine | NotPossible:
    """OpenRLHF 0.11 has dots in its options, earlier versions have not."""
    values = program.values
    model = values.get("actor_model_name_or_path", values.get("pretrain"))
    size = values.get("vllm_tensor_parallel_size", 1)
    if not isinstance(model, str):
        return _reject("The model is not in the arguments.")
    if not isinstance(size, int):
        return _reject("The tensor parallel size is not a number.")
    options = {
        "max_model_len": values.get("data_max_len", values.get("max_len")),
        "gpu_memory_utilization": values.get("vllm_gpu_memory_utilization", OPENRLHF_SHARE),
        "enforce_eager": values.get("vllm_enforce_eager", values.get("enforce_eager")),
        "dtype": "bfloat16",
        "trust_remote_code": True,
    }
    return Engine("vllm", model, size, {key: value for key, value in options.items() if value is not None})
