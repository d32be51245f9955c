"""Memory and lengths of OpenRLHF and slime as commands, by the model's name and the accelerators."""

from __future__ import annotations

from typing import Any

import pytest
from job_specs import COMMAND, merged

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import find_warnings

SLIME = "python3 train.py --actor-num-nodes {nodes} --actor-num-gpus-per-node 8 --colocate --hf-checkpoint"
STATE = "weights, gradients and moments need at least"
OPENRLHF = (
    "python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes {nodes} --actor.num_gpus_per_node 8 --train.colocate_all "
    "--vllm.num_engines 8 "
    "--actor.model_name_or_path"
)


def job(line: str, nodes: int) -> dict[str, Any]:
    accelerator = {"resourceName": "nvidia.com/gpu", "count": 8, "memory": "80Gi"}
    worker = {"replicas": nodes, "resources": {"cpu": 96, "memory": "1800Gi"}, "accelerator": accelerator}
    words = line.format(nodes=nodes).split()
    return merged(COMMAND, {"framework.command": words, "cluster.workers": [worker]})


@pytest.mark.parametrize(
    ("line", "nodes", "expected"),
    [
        (f"{SLIME} Qwen/Qwen3-8B --sglang-mem-fraction-static 0.7", 1, None),
        (f"{SLIME} Qwen/Qwen3-32B --sglang-mem-fraction-static 0.7", 1, "fill its share of 0.7 x 80 GiB"),
        (f"{SLIME} Qwen/Qwen3-32B --sglang-mem-fraction-static 0.7 --rollout-num-gpus-per-engine 4", 2, None),
        (
            f"{SLIME} Qwen/Qwen2.5-72B --rollout-num-gpus-per-engine 8",
            1,
            STATE,
        ),
        (f"{SLIME} Qwen/Qwen2.5-72B --rollout-num-gpus-per-engine 8 --optimizer-cpu-offload", 1, None),
        (f"{SLIME} Qwen/Qwen2.5-72B --rollout-num-gpus-per-engine 8", 4, None),
        (f"{SLIME} Qwen/Qwen2.5-72B-Instruct-AWQ --sglang-mem-fraction-static 0.7", 1, None),
        (f"{SLIME} /models/q --sglang-mem-fraction-static 1.7", 1, "it must be above 0 and at most 1"),
        (f"{OPENRLHF} meta-llama/Llama-3.1-8B", 1, None),
        (f"{OPENRLHF} meta-llama/Llama-3.1-70B", 4, "fill its share of 0.95 x 80 GiB"),
        (
            f"{OPENRLHF} meta-llama/Llama-3.1-70B --vllm.tensor_parallel_size 8",
            1,
            STATE,
        ),
        (f"{OPENRLHF} meta-llama/Llama-3.1-70B --vllm.tensor_parallel_size 8 --ds.adam_offload", 1, None),
        (f"{OPENRLHF} /models/q --vllm.gpu_memory_utilization 0", 1, "it must be above 0 and at most 1"),
    ],
)
def test_what_does_not_fit_is_an_error(line: str, nodes: int, expected: str | None) -> None:
    found = [each for each in validate_job("sum", job(line, nodes)).findings if each.rule == "command-memory"]
    assert [expected in each.message for each in found if expected] == [True] * (expected is not None), found
    assert expected or not found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{SLIME} Qwen/Qwen3-8B --sglang-mem-fraction-static 0.95", "leaves 5% of the device"),
        (
            f"{SLIME} Qwen/Qwen3-8B --rollout-max-prompt-len 1024 "
            "--rollout-max-response-len 40000 --rotary-base 1000000",
            "has a context of 40960; use less",
        ),
        (f"{SLIME} Qwen/Qwen3-8B --rollout-max-prompt-len 1024 --rollout-max-response-len 8192", None),
        (f"{SLIME} Qwen/Qwen3-8B --sglang-context-length 65536", "is more than the context of 40960 tokens"),
        (f"{SLIME} Qwen/Qwen3-8B --sglang-context-length 65536 --use-rope-scaling", None),
        (
            f"{SLIME} Qwen/Qwen3-8B --sglang-context-length 4096 --rollout-max-prompt-len 4096 "
            "--rollout-max-response-len 64",
            "use 4160 or more",
        ),
        (f"{OPENRLHF} Qwen/Qwen2.5-Math-7B --data.max_len 8192", "data_max_len 8192 tokens, and Qwen/Qwen2.5-Math-7B"),
        (f"{OPENRLHF} Qwen/Qwen2.5-Math-7B --data.max_len 4096", None),
    ],
)  # fmt: skip
def test_lengths_are_compared_with_the_model(line: str, expected: str | None) -> None:
    spec = RLTrainingJobSpec.model_validate(job(line, 1))
    found = [each for each in find_warnings(spec) if "context" in each or "use 4160" in each or "leaves" in each]
    assert [expected in each for each in found if expected] == [True] * (expected is not None), found
    assert expected or not found
