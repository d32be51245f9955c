"""The engine of OpenRLHF's arguments, for the preflight check `engine`. Pure."""

from __future__ import annotations

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.preflight import reject_engine
from rlt_pod.preflight.expected import Engine, NotPossible

SHARE = 0.95
"""The default of vllm_gpu_memory_utilization: train_ppo_ray.py in OpenRLHF 0.11.2."""


def build_engine(program: Program) -> Engine | NotPossible:
    """Build the engine, or the reason why it is not known.

    OpenRLHF 0.11 has dots in its options, earlier versions have not.
    """
    values = program.values
    model = values.get("actor_model_name_or_path", values.get("pretrain"))
    size = values.get("vllm_tensor_parallel_size", 1)
    if not isinstance(model, str):
        return reject_engine("The model is not in the arguments.")
    if not isinstance(size, int):
        return reject_engine("The tensor parallel size is not a number.")
    options = {
        "max_model_len": values.get("data_max_len", values.get("max_len")),
        "gpu_memory_utilization": values.get("vllm_gpu_memory_utilization", SHARE),
        "enforce_eager": values.get("vllm_enforce_eager", values.get("enforce_eager")),
        "dtype": "bfloat16",
        "trust_remote_code": True,
    }
    return Engine("vllm", model, size, {key: value for key, value in options.items() if value is not None})
