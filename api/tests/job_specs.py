"""Valid specs of each framework type, and changes to them, from which tests build jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]

BUILTIN: Json = {
    "model": {"fromSeed": {}},
    "data": {"preset": "arithmetic"},
    "training": {"totalSteps": 10, "trainBatchSize": 32},
    "cluster": {
        "image": "registry.example/trainer:cpu",
        "workers": [{"replicas": 2, "resources": {"cpu": "2", "memory": "4Gi"}}],
    },
}
COMMAND: Json = {
    "framework": {"type": "command", "command": ["python3", "-m", "verl.trainer.main_ppo"]},
    "cluster": BUILTIN["cluster"],
}

VERL: Json = {
    "framework": {"type": "verl"},
    "model": {"path": "m"},
    "data": {"files": ["/mnt/rlt/a.parquet"]},
    "training": BUILTIN["training"],
    "cluster": {
        "image": "registry.example/verl:0.9.1",
        "workers": [
            {
                **BUILTIN["cluster"]["workers"][0],
                "resources": {"cpu": "32", "memory": "4Gi"},
                "accelerator": {"resourceName": "nvidia.com/gpu", "count": 4},
            }
        ],
    },
}

ROLL: Json = {**VERL, "framework": {"type": "roll"}, "data": {"files": ["/mnt/rlt/a.jsonl"]}}

OPENRLHF: Json = {
    **VERL,
    "framework": {"type": "openrlhf"},
    "rewards": [{"function": {"name": "scoring:reward_func", "configMap": "rewards"}}],
}


def workers(**changes: Any) -> Json:
    """Return a cluster with changes to its one worker group."""
    return {"cluster": {"workers": [{**BUILTIN["cluster"]["workers"][0], **changes}]}}


def groups(*names: str | None) -> Json:
    """Return a cluster of equal worker groups with these names."""
    (group,) = BUILTIN["cluster"]["workers"]
    return {"cluster": {"workers": [{**group, **({"name": name} if name else {})} for name in names]}}


def gpus(count: int = 8, replicas: int = 1, memory: str = "80Gi", pod: str = "512Gi") -> Json:
    """Return a cluster with accelerators of a known memory."""
    accelerator = {"resourceName": "nvidia.com/gpu", "count": count, "memory": memory}
    return workers(replicas=replicas, resources={"cpu": "32", "memory": pod}, accelerator=accelerator)


def separate_engines(tensor_parallel_size: int, replicas: int, **changes: Any) -> Json:
    """Return a cluster with a second worker group of 8 accelerators for each pod, which generates, with changes."""
    (group,) = gpus(replicas=replicas)["cluster"]["workers"]
    return {
        "rollout.mode": "separate",
        "rollout.workerGroup": "rollout",
        "rollout.tensorParallelSize": tensor_parallel_size,
        "cluster.workers": [{**group, "replicas": 1}, {**group, "name": "rollout", **changes}],
    }


def elastic(**changes: Any) -> Json:
    """Return a cluster with a second worker group of 2 to 8 pods, 4 at first, each with an engine, with changes."""
    bounds = {"minReplicas": 2, "maxReplicas": 8, **changes}
    given = {name: value for name, value in bounds.items() if value is not None}
    return separate_engines(tensor_parallel_size=8, replicas=4, **given)


def step(**changes: Any) -> Json:
    """Return the changes that add a step before the program."""
    return {"framework.prepare": [{"name": "data", "command": ["python3", "get.py"], **changes}]}


def env(*names: str) -> Json:
    """Return a cluster with environment variables of these names."""
    return {"cluster": {"env": [{"name": name, "value": "1"} for name in names]}}


def stop_timeout(value: str) -> Json:
    """Return a cluster with Ray's timeout for a stopped job."""
    return {"cluster": {"env": [{"name": "RAY_JOB_STOP_WAIT_TIME_S", "value": value}]}}


def judge(options: Json | None = None, **changes: Any) -> Json:
    """Return a reward by a judge."""
    block = {"baseUrl": "http://judge:8000/v1", "model": "judge", **changes}
    return {"rewards": [{"judge": block, **({"options": options} if options else {})}]}


def suite(**changes: Any) -> Json:
    """Return an evaluation of one suite."""
    given = {"name": "test", "every": 5, **changes}
    return {"evaluation": [{name: value for name, value in given.items() if value is not None}]}


def evaluated(only: Json, **changes: Any) -> Json:
    """Return an evaluation of one suite without training."""
    return {**suite(every=None), "training.totalSteps": None, "evaluateOnly": only, **changes}


def tools(*given: Json, **changes: Any) -> Json:
    """Return conversations with tools."""
    return {"rollout.multiTurn": {"tools": list(given), **changes}}


def openenv(**changes: Any) -> Json:
    """Return conversations with an environment on a server."""
    return {"rollout.multiTurn": {"openenv": {"url": "http://echo:8000", **changes}}}


def parsers(**names: str) -> Json:
    """Return conversations with a tool and parsers of vLLM."""
    return {"rollout.multiTurn": {"tools": [{"name": "calculator"}], **names}}


def agent(**given: Any) -> Json:
    """Return conversations of an agent with sandboxes."""
    return {"rollout.multiTurn": {"agent": given, "sandbox": {}}}


def sandbox(block: Json, *, tool: str = "python") -> Json:
    """Return conversations with a tool and sandboxes."""
    return {"rollout.multiTurn": {"tools": [{"name": tool}], "sandbox": block}}


def hub_model(path: str) -> Json:
    """Return a model by its path. Its size is unknown."""
    return {"model": {"path": path, "fromSeed": None}}


def hub_data(name: str) -> Json:
    """Return data from the hub."""
    return {"data": {"preset": None, "hub": {"name": name}}, "rewards": [{"name": "exact"}]}


def wandb(project: str) -> Json:
    """Return a job that reports to a project of Weights & Biases."""
    return {"observability.wandb": {"apiKey": {"name": "wandb", "key": "key"}, "project": project}}


def files(*paths: str) -> Json:
    """Return data from files."""
    return {"data": {"preset": None, "files": list(paths)}, "rewards": [{"name": "exact"}]}


def images() -> Json:
    """Return a job whose prompts have images."""
    data = {"preset": None, "files": ["/x.parquet"], "imageKey": "images"}
    return {**hub_model("Qwen/Qwen2.5-VL-3B-Instruct"), "data": data, "rewards": [{"name": "exact"}]}


def pairs(**data: Any) -> Json:
    """Return a job that trains on pairs."""
    return {"data": {"preset": None, "files": ["/mnt/rlt/pairs.jsonl"], **data}, "algorithm": {"dpo": {}}}


def accelerator(name: str) -> Json:
    """Return a cluster with one accelerator of this resource name in each pod."""
    return workers(resources={"cpu": "8", "memory": "64Gi"}, accelerator={"resourceName": name, "count": 1})


def two_vendors() -> Json:
    """Return a cluster with GPUs of two vendors."""
    (one,), (other,) = (accelerator(f"{vendor}.com/gpu")["cluster"]["workers"] for vendor in ("nvidia", "amd"))
    return {"cluster": {"workers": [one, {**other, "name": "other"}]}}


TOKEN = {"name": "TOKEN", "secretKeyRef": {"name": "search", "key": "token"}}
SCORING = {"function": {"name": "scoring:compute_score"}}
QWEN_7B = {"path": "Qwen/Qwen2.5-7B-Instruct", "fromSeed": None, "dtype": "bfloat16"}


def merged(below: Json, above: Json) -> dict[str, Any]:
    """Merge `above` into `below`. A key may be a path such as training.totalSteps; null removes the key."""
    result = {key: value for key, value in below.items() if above.get(key, 0) is not None}
    for path, value in above.items():
        key, _, rest = path.partition(".")
        if rest:
            result[key] = merged(result.get(key, {}), {rest: value})
        elif isinstance(value, Mapping):
            under = result.get(key, {})
            result[key] = merged(under if isinstance(under, Mapping) else {}, value)
        elif value is not None:
            result[key] = value
    return result
