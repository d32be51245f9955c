"""Invalid specs, each with the rule and the field of its finding, for three tests.

Offline validation (test_rules.py), the CRD in a real API server for rules in CEL, and the admission webhook behind it
(operator/tests/apiserver/test_validation.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from job_specs import (
    BUILTIN,
    COMMAND,
    OPENRLHF,
    QWEN_7B,
    ROLL,
    SCORING,
    TOKEN,
    VERL,
    Json,
    accelerator,
    agent,
    elastic,
    env,
    evaluated,
    files,
    gpus,
    groups,
    hub_data,
    hub_model,
    images,
    judge,
    merged,
    openenv,
    pairs,
    parsers,
    sandbox,
    separate_engines,
    step,
    stop_timeout,
    suite,
    tools,
    two_vendors,
    wandb,
    workers,
)

DEVICE = "spec.cluster.workers[0].accelerator.resourceName"
JUDGE = "spec.rewards[0].judge"
AGENT = "spec.rollout.multiTurn.agent"
CONVERSATION = "spec.rollout.multiTurn"
OPENENV = f"{CONVERSATION}.openenv"
BUCKET = "spec.storage.bucket"
PUBLISH = "spec.publish[0]"
HUB = {"hub": "lab/math"}
SANDBOX = "spec.rollout.multiTurn.sandbox"


@dataclass(frozen=True)
class Case:
    """An invalid job with one error."""

    rule: str
    at: str
    """The field that the finding names."""
    change: Json
    """What differs from `base` (see `merged`)."""
    fix: str = ""
    """A part of the fix: the nearest valid value."""
    cel: bool = False
    """Whether the CRD alone rejects it."""
    base: Json = field(default_factory=lambda: BUILTIN)
    name: str = "sum"

    @property
    def spec(self) -> dict[str, Any]:
        return merged(self.base, self.change)

    @property
    def id(self) -> str:
        return f"{self.rule}-{CASES.index(self)}"


EXACT = [{"name": "exact"}]
PAIRS_SUITE = suite(every=None, data={"files": ["/mnt/rlt/val.jsonl"]})
TRAIN, MINI, MICRO = (
    f"spec.training.{each}" for each in ("trainBatchSize", "ppoMiniBatchSize", "ppoMicroBatchSizePerDevice")
)
N = "spec.rollout.responsesPerPrompt"
POD = "spec.cluster.workers[0].resources"
CRITIC = "spec.algorithm.critic"
CORRECTION = "spec.algorithm.rolloutCorrection"
SEED = "spec.model.fromSeed"
ENV = "spec.cluster.env[0].name"
TOKENS = "spec.training.ppoMaxTokenLenPerDevice"

OVERRIDES = "spec.framework.overrides[0]"
FAULT_TOLERANT = {"spec": {"containers": [{"name": "ray-head", "env": [{"name": "RAY_gcs_storage", "value": "x"}]}]}}
LARGE = {"metadata": {"annotations": {"example.com/script": "x" * 2**16}}}

CASES = [
    # framework, model, data, image, name
    Case("framework", "spec.model", {"model": None}),
    Case("framework", "spec.data", {"data": None}),
    Case("framework", "spec.training.totalSteps", {"training.totalSteps": None}),
    Case(
        "framework",
        "spec.framework.command",
        {"framework.type": "command"},
        cel=True,
        base={"cluster": COMMAND["cluster"]},
    ),
    Case("framework", "spec.framework.command", {"framework.command": []}, cel=True, base=COMMAND),
    Case("framework", "spec.framework.command", {"framework.command": ["x"]}, cel=True),
    Case("framework", "spec.framework.workingDirectory", {"framework.workingDirectory": "/x"}, cel=True),
    Case("framework", "spec.framework.totalSteps", {"framework.totalSteps": 3}, cel=True),
    Case("framework", "spec.model", {"model.fromSeed": {}}, base=COMMAND),
    Case("framework", "spec.framework.version", {"framework.version": "0.9"}, "type: verl", cel=True),
    *(
        Case("framework", "spec.framework.version", {"framework.version": "9"}, "type: verl", cel=True, base=base)
        for base in (BUILTIN, OPENRLHF, ROLL, COMMAND)
    ),
    Case("schema", "spec.framework.version", {"framework.version": "0.8"}, "one of 0.5, 0.9", cel=True, base=VERL),
    Case("schema", "spec.framework.version", {"framework.version": 0.9}, "in quotes", cel=True, base=VERL),
    Case("framework", "spec.framework.overrides", {"framework.overrides": ["a=1"]}, "type: verl", cel=True),
    Case("framework", "spec.framework.command", {"framework.command": ["x"]}, cel=True, base=VERL),
    Case("framework-verl", "spec.algorithm.convention", {"algorithm.convention": "trl"}, "builtin", base=VERL),
    Case(
        "framework-verl",
        "spec.evaluation[1]",
        {
            "evaluation": [
                {"name": name, "data": {"files": [f"/mnt/rlt/{name}.parquet"]}, "every": 5} for name in ("a", "b")
            ]
        },
        "add its files to the first suite",
        base=VERL,
    ),
    Case("framework-verl", "spec.checkpoint.keepBest", {"checkpoint.keepBest": True}, "remove it", base=VERL),
    Case("framework-devices", "spec.cluster.workers[0].accelerator", workers(), base=VERL),
    Case(
        "framework-devices",
        "spec.cluster.workers[1].accelerator.count",
        {
            "rollout": {"mode": "separate", "workerGroup": "engines"},
            "cluster.workers": [
                VERL["cluster"]["workers"][0],
                {
                    **VERL["cluster"]["workers"][0],
                    "name": "engines",
                    "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
                },
            ],
        },
        "use 4",
        base=VERL,
    ),
    Case("framework-overrides", OVERRIDES, {"framework.overrides": ["trainer.nnodes=9"]}, base=VERL),
    Case("framework-openrlhf", "spec.training.totalSteps", {}, "totalEpochs", base=OPENRLHF),
    Case("framework-overrides", OVERRIDES, {"framework.overrides": ["a=1"]}, "--NAME", base=OPENRLHF),
    Case("framework-overrides", OVERRIDES, {"framework.overrides": ["--actor.num_nodes=9"]}, base=OPENRLHF),
    Case("framework-overrides", OVERRIDES, {"framework.overrides": ["trainer.foo=1"]}, "remove it", base=VERL),
    Case("framework-overrides", OVERRIDES, {"framework.overrides": ["a b"]}, "KEY=VALUE", base=VERL),
    Case(
        "framework-roll",
        "spec.training.totalEpochs",
        {"training.totalEpochs": 1, "training.totalSteps": None},
        "totalSteps",
        base=ROLL,
    ),
    Case("framework-overrides", OVERRIDES, {"framework.overrides": ["num_nodes=9"]}, "worker group", base=ROLL),
    Case("model-source", "spec.model", {"model.fromSeed": None}),
    Case("model-source", "spec.model", {"model.path": "m"}, cel=True),
    Case("model-source", "spec.model.revision", {"model.revision": "main"}),
    Case("model-source", "spec.model.revision", {**hub_model("s3://bucket/q"), "model.revision": "main"}),
    Case("heads", "spec.model.fromSeed.hiddenSize", {"model.fromSeed.hiddenSize": 130}, "use 128 or 136"),
    Case(
        "heads",
        "spec.model.fromSeed.hiddenSize",
        {"model.fromSeed.hiddenSize": 132, "model.fromSeed.numAttentionHeads": 4},
        "use 128 or 136",
        cel=True,
    ),
    Case("heads", "spec.model.fromSeed.numKeyValueHeads", {"model.fromSeed.numKeyValueHeads": 3}, "use 2 or 4"),
    Case(
        "heads",
        "spec.model.fromSeed.numKeyValueHeads",
        {"model.fromSeed.numAttentionHeads": 8, "model.fromSeed.numKeyValueHeads": 3},
        "use 2 or 4",
        cel=True,
    ),
    Case("data-source", "spec.data", {"data.preset": None}),
    Case("data-source", "spec.data", {"data.hub.name": "openai/gsm8k"}, cel=True),
    Case("data-source", "spec.data.promptKey", {"data.promptKey": "question"}),
    Case("data-source", "spec.data.imageKey", {"data.imageKey": "images"}),
    Case(
        "prompt-images",
        "spec.data.overlongPrompts",
        {**images(), "data.overlongPrompts": "left"},
        "use filter or error",
    ),
    Case("prompt-images", "spec.model.lora", {**images(), "model.lora": {"rank": 8}}, "remove one of them"),
    Case("prompt-images", "spec.model.freezeVisionTower", {"model.freezeVisionTower": True}, "remove it"),
    Case("dpo", "spec.data.preset", {"algorithm.dpo": {}}, "use files or hub with the columns prompt, chosen"),
    Case("dpo", "spec.data.overlongPrompts", pairs(overlongPrompts="left"), "use filter or error"),
    Case("dpo", "spec.data.answerKey", pairs(answerKey="best"), "remove it"),
    Case(
        "dpo",
        "spec.evaluation[0].data.preset",
        {**pairs(), **suite(data={"preset": "math"})},
        "use files or hub with the columns prompt, chosen",
    ),
    Case(
        "dpo",
        "spec.evaluation[0].temperature",
        {**pairs(), **suite(data={"files": ["/mnt/rlt/val.jsonl"]}, temperature=1.0)},
        "remove it",
    ),
    Case(
        "dpo",
        "spec.evaluation[0].promoteIf",
        {**pairs(), **suite(data={"files": ["/mnt/rlt/val.jsonl"]}, promoteIf={"minimum": 0.5})},
        "remove it",
    ),
    Case("dpo", "spec.rewards", {**pairs(), "rewards": [{"name": "exact"}]}, "remove it"),
    Case("dpo", "spec.rollout.responsesPerPrompt", {**pairs(), "rollout.responsesPerPrompt": 4}, "remove it"),
    Case(
        "dpo", "spec.model.lora.syncAdapters", {**pairs(), "model.lora": {"rank": 4, "syncAdapters": True}}, "remove it"
    ),
    Case("dpo", "spec.rollout.engine", {**pairs(), "rollout.engine": "transformers"}, "remove it"),
    Case("dpo", "spec.algorithm.filterGroups", {**pairs(), "algorithm.filterGroups": {}}, "remove it"),
    Case("dpo", "spec.algorithm.klInReward", {**pairs(), "algorithm.klInReward": {}}, "remove it"),
    Case("dpo", "spec.algorithm.klLossCoef", {**pairs(), "algorithm.klLossCoef": 0.01}, "remove it"),
    Case("dpo", "spec.training.ppoMiniBatchSize", {**pairs(), "training.ppoMiniBatchSize": 16}, "remove it"),
    Case("dpo", "spec.training.ppoEpochs", {**pairs(), "training.ppoEpochs": 2}, "remove it"),
    Case("dpo", "spec.training.warmup", {**pairs(), "training.warmup": {"steps": 1}}, "remove it"),
    Case("dpo", "spec.observability.recordSteps", {**pairs(), "observability.recordSteps": [1]}, "remove it"),
    Case("data-path", "spec.data.path", {"data.path": "/d"}, cel=True),
    Case("image", "spec.cluster.image", {"cluster.image": None}),
    Case(
        "image",
        "spec.cluster.image",
        {"cluster.image": "https://registry.example/Trainer:1.0"},
        "use registry.example/",
    ),
    Case("image", "spec.cluster.image", {"cluster.image": "a b"}),
    Case("model-path", "spec.model.path", hub_model("https://huggingface.co/Qwen/Qwen3"), "use Qwen/Qwen3"),
    Case("model-path", "spec.model.path", hub_model("Qwen/Qwen3@main"), "use Qwen/Qwen3, and model.revision: main"),
    Case("model-path", "spec.model.path", hub_model("gs://bucket/model"), "put it on a volume"),
    Case("model-path", "spec.model.path", hub_model("s3://bucket"), "write s3://BUCKET/KEY"),
    Case("model-path", "spec.model.path", hub_model("s3://bucket/q/config.json"), "use s3://bucket/q"),
    Case("model-path", "spec.model.path", hub_model("oci://qwen3:v1"), "write oci://HOST/NAME[:TAG]"),
    Case("model-path", "spec.model.path", hub_model("~/model"), "put it on a volume"),
    Case("model-path", "spec.rewards[0].model", {"rewards": [{"model": "./model"}]}, "put it on a volume"),
    Case("data-files", "spec.data.files[0]", files("gs://bucket/train.parquet"), "put it on a volume"),
    Case("data-files", "spec.data.files[0]", files("oci://ghcr.io/a/train.parquet"), "put it on a volume"),
    Case("data-files", "spec.data.files[0]", files("s3://bucket/../train.parquet"), "write s3://BUCKET/KEY"),
    Case("data-files", "spec.data.files[0]", files("s3://bucket/train.csv"), "convert it to Parquet"),
    Case("data-files", "spec.data.path", {"data.preset": "gsm8k", "data.path": "s3://data"}, "write s3://BUCKET/KEY"),
    Case("data-files", "spec.data.files[0]", files("/data/*.parquet"), "list the files"),
    Case("data-files", "spec.data.files[0]", files("/data/train.csv"), "convert it to Parquet"),
    Case("data-files", "spec.data.files[0]", files("/data"), "list the files in it"),
    Case("data-files", "spec.data.path", {"data.preset": "gsm8k", "data.path": "data"}),
    Case(
        "evaluation-data",
        "spec.evaluation[0].data",
        {**files("/data/train.parquet"), **suite()},
        "add it with preset, files or hub",
    ),
    Case("evaluation-data", "spec.evaluation[0].data", suite(data={}), "add one of them"),
    Case(
        "evaluation-data",
        "spec.evaluation[0].data",
        suite(data={"preset": "math", "hub": {"name": "openai/gsm8k"}}),
        "keep one of them",
        cel=True,
    ),
    Case(
        "evaluation-data",
        "spec.evaluation[0].data.path",
        suite(data={"preset": "digits", "path": "/data"}),
        "remove it",
        cel=True,
    ),
    Case(
        "evaluation-data",
        "spec.evaluation[0].data.answerKey",
        suite(data={"preset": "math", "answerKey": "solution"}),
        "add files",
    ),
    Case("evaluation", "spec.evaluation[0].every", suite(every=None), "such as 20", cel=True),
    Case("evaluation", "spec.evaluation[0].responsesPerPrompt", suite(responsesPerPrompt=4), "use 1", cel=True),
    Case("evaluate-only", "spec.evaluation", {"evaluateOnly": {}}, "add a suite"),
    Case("evaluate-only", "spec.evaluateOnly", {**suite(), "evaluateOnly": {}}, "type: builtin", base=VERL),
    Case("evaluate-only", "spec.evaluateOnly", evaluated({}, **pairs(), **PAIRS_SUITE), "remove one of them"),
    Case("evaluate-only", "spec.evaluateOnly", evaluated({}, rewards=[{"model": "/m"}]), "remove one of them"),
    Case("evaluate-only", "spec.rollout.mode", {**separate_engines(1, 1), **evaluated({})}, "use colocated"),
    Case("evaluate-only", "spec.preflight.level", evaluated({}, **{"preflight.level": "full"}), "use basic"),
    Case("evaluate-only", "spec.evaluateOnly.steps", evaluated({"steps": [0, 5]}), "add checkpoints", cel=True),
    Case(
        "evaluate-only",
        "spec.evaluateOnly.checkpoints",
        evaluated({"checkpoints": "/mnt/rlt/runs/a/checkpoints"}, **{"storage.bucket": "s3://runs/x"}),
        "use storage.claimName",
    ),
    Case(
        "evaluate-only",
        "spec.evaluation[0].promoteIf.gainAbove",
        {
            **evaluated({"checkpoints": "/mnt/rlt/runs/a/checkpoints", "steps": ["latest"]}),
            **suite(every=None, promoteIf={"gainAbove": 0}),
        },
        "add 0 to evaluateOnly.steps",
    ),
    Case("publish", "spec.publish", {"publish": [HUB]}, "remove it", base=VERL),
    Case("publish", "spec.publish", evaluated({}, publish=[HUB]), "remove it"),
    Case("publish", f"{PUBLISH}.hub", {"publish": [{"hub": "math"}]}, "use owner/name"),
    Case("publish", f"{PUBLISH}.hub", {"publish": [{"hub": "lab/a--b"}]}, "without -- and .."),
    Case("publish", f"{PUBLISH}.hub", {"publish": [{"hub": "https://huggingface.co/lab/math"}]}, "use lab/math"),
    Case("publish", f"{PUBLISH}.hub", {"publish": [{"hub": "lab/math.git"}]}, "use lab/math"),
    Case("publish", PUBLISH, {"publish": [{}]}, "add one of them", cel=True),
    Case("publish", PUBLISH, {"publish": [{**HUB, "bucket": "s3://models/a"}]}, "keep one of them", cel=True),
    Case("publish", f"{PUBLISH}.endpoint", {"publish": [{**HUB, "endpoint": "http://s3"}]}, "remove it", cel=True),
    Case(
        "schema",
        f"{PUBLISH}.endpoint",
        {"publish": [{"bucket": "s3://models", "endpoint": "file:///etc/passwd"}]},
        "write a value of this form",
        cel=True,
    ),
    Case(
        "publish",
        f"{PUBLISH}.public",
        {"publish": [{"bucket": "s3://models/a", "public": True}]},
        "remove it",
        cel=True,
    ),
    Case("publish", PUBLISH, {"publish": [{**HUB, "registry": "oci://ghcr.io/lab/a"}]}, "keep one of them", cel=True),
    Case(
        "publish",
        f"{PUBLISH}.endpoint",
        {"publish": [{"registry": "oci://ghcr.io/lab/a", "endpoint": "http://s3"}]},
        "remove it",
        cel=True,
    ),
    Case(
        "publish",
        f"{PUBLISH}.public",
        {"publish": [{"registry": "oci://ghcr.io/lab/a", "public": True}]},
        "remove it",
        cel=True,
    ),
    Case(
        "schema",
        f"{PUBLISH}.registry",
        {"publish": [{"registry": "oci://lab/math"}]},  # no host
        "write a value of this form",
        cel=True,
    ),
    Case(
        "schema",
        f"{PUBLISH}.registry",
        {"publish": [{"registry": "https://ghcr.io/lab/math"}]},
        "use oci://ghcr.io/lab/math",
        cel=True,
    ),
    Case("publish", "spec.publish[1].hub", {"publish": [HUB, HUB]}, "use another place"),
    Case(
        "publish",
        f"{PUBLISH}.bucket",
        {"publish": [{"bucket": "s3://runs/a"}], "storage.bucket": "s3://runs/a/b"},
        "such as s3://runs/a/models/NAME",
    ),
    Case(
        "publish",
        f"{PUBLISH}.hub",
        {"publish": [HUB], "storage.modelCache": {"claimName": "c", "readOnly": True}},
        "set HF_HUB_OFFLINE to 0",
    ),
    Case("publish", f"{PUBLISH}.hub", {"publish": [HUB], **env("HF_HUB_OFFLINE")}, "set HF_HUB_OFFLINE to 0"),
    Case("promote-if", "spec.evaluation[0].promoteIf.gainAbove", suite(promoteIf={}), "or use minimum", cel=True),
    Case(
        "promote-if",
        "spec.evaluation[0].every",
        suite(every=None, beforeTrain=True, promoteIf={"minimum": 0.5}),
        "such as 20",
        cel=True,
    ),
    Case("promote-if", "spec.evaluation[0].beforeTrain", suite(promoteIf={"gainAbove": 0}), "use true", cel=True),
    Case(
        "promote-if",
        "spec.evaluation[0].promoteIf.metric",
        suite(promoteIf={"metric": "best", "minimum": 0.5}),
        "use mean",
        cel=True,
    ),
    Case(
        "promote-if",
        "spec.evaluation[0].promoteIf.gainAbove",
        {
            **suite(beforeTrain=True, promoteIf={"gainAbove": 0}),
            "checkpoint": {"resume": "path", "resumeFromPath": "/mnt/rlt/other/checkpoints/step-5"},
        },
        "use minimum instead",
    ),
    Case("data-files", "spec.evaluation[0].data.files[0]", suite(data={"files": ["a.parquet"]}), "put it on a volume"),
    Case(
        "hub-name",
        "spec.evaluation[0].data.hub.name",
        suite(data={"hub": {"name": "https://huggingface.co/datasets/openai/gsm8k"}}),
        "use openai/gsm8k",
    ),
    Case("command", "spec.framework.command", {"framework.command": ["python3 -m ray_program a=1"]}, base=COMMAND),
    Case(
        "command", "spec.framework.command", {"framework.command": ["cd /x && python3 a.py"]}, "bash, -c", base=COMMAND
    ),
    Case(
        "command", "spec.framework.prepare[0].command", step(command=["tar xf a.tgz"]), "write one item for each word"
    ),
    Case("command", "spec.framework.prepare[0].command", step(command=["cd /x && make"]), "bash, -c", base=COMMAND),
    Case(
        "command",
        "spec.framework.workingDirectory",
        {"framework.workingDirectory": "/x", "framework.runtimeEnv": {"workingDir": "file:///x.zip"}},
        "remove it or spec.framework.runtimeEnv.workingDir",
        cel=True,
        base=COMMAND,
    ),
    Case("framework", "spec.framework.runtimeEnv", {"framework.runtimeEnv": {"pip": ["x"]}}, cel=True),
    Case(
        "engine-kwargs",
        "spec.rollout.engineKwargs.seed",
        {"rollout.engineKwargs": {"seed": 3}},
        "remove it",
    ),
    Case("accelerator", DEVICE, accelerator("google.com/tpu"), "use nvidia.com/gpu"),
    Case("accelerator", DEVICE, accelerator("nvidia.com/gpus"), "did you mean nvidia.com/gpu?"),
    Case("accelerator", "spec.cluster.workers[1].accelerator.resourceName", two_vendors(), base=COMMAND),
    Case("name", "metadata.name", {}, cel=True, name="a" * 41),
    Case("name", "metadata.name", {}, "use job-1st", name="1st"),
    Case("name", "metadata.name", {}, "use a-b", name="a.b"),
    Case(
        "resume-from-job",
        "spec.checkpoint.resumeFromJob",
        {"checkpoint": {"resume": "job", "resumeFromJob": "again"}, "storage.claimName": "runs"},
        "remove it and use resume: auto",
        name="again",
    ),
    *(
        Case("model-family", at, {**hub_model(path), **gpus(8), **change}, fix)
        for at, path, change, fix in (
            (
                "spec.data.imageKey",
                "Qwen/Qwen2.5-0.5B-Instruct",
                {"data": images()["data"], "rewards": EXACT},
                "remove it",
            ),
            (
                "spec.training.expertParallelSize",
                "mistralai/Mixtral-8x7B-v0.1",
                {"training.expertParallelSize": 2},
                "remove",
            ),
            (
                "spec.algorithm.routerBiasUpdateRate",
                "/mnt/rlt/models/OLMoE-1B-7B-0924",
                {"algorithm.routerBiasUpdateRate": 0.001},
                "remove it",
            ),
            (
                "spec.algorithm.routerReplay",
                "mistralai/Mixtral-8x7B-v0.1",
                {"algorithm.routerReplay": "R3"},
                "remove it",
            ),
            (
                "spec.model.lora.targetModules[0]",
                "Qwen/Qwen3-0.6B",
                {"model.lora": {"rank": 8, "targetModules": ["q_porj", "v_proj"]}},
                "did you mean q_proj?",
            ),
        )
    ),
    *(
        Case("hub-name", "spec.data.hub.name", hub_data(name), fix)
        for name, fix in (
            ("https://huggingface.co/datasets/openai/gsm8k", "use openai/gsm8k"),
            ("datasets/openai/gsm8k", "use openai/gsm8k"),
            ("openai/gsm8k@main", "use openai/gsm8k, and data.hub.revision: main"),
            ("/mnt/rlt/data/gsm8k", "data.files"),
            ("data/train.parquet/x", "data.files"),
        )
    ),
    Case(
        "function-module",
        "spec.rewards[0].function.name",
        {"rewards": [{"function": {"name": "rewards.py:score", "configMap": "r"}}]},
        "use rewards:score",
    ),
    Case(
        "function-module",
        "spec.rollout.multiTurn.agent.name",
        {"rollout.multiTurn.agent": {"name": "team.agent.py:run"}},
        "use team.agent:run",
    ),
    Case(
        "function-module",
        "spec.rollout.multiTurn.environment",
        {"rollout.multiTurn.environment": "games.py:Chess"},
        "use games:Chess",
    ),
    Case(
        "function-module",
        "spec.algorithm.advantageFunction.name",
        {"algorithm.advantageFunction": {"name": "mine..own:advantage"}},
        "use mine.own:advantage",
    ),
    Case("wandb-name", "spec.observability.wandb.project", wandb("team/runs"), "use runs, and wandb.entity: team"),
    *(
        Case("judge-url", f"{JUDGE}.baseUrl", judge(baseUrl=f"http://judge:8000/v1{end}"), "use http://judge:8000/v1")
        for end in ("/chat/completions", "/completions/", "/models", "?key=1")
    ),
    Case(
        "pod-template-shape",
        "spec.cluster.workers[0].podTemplate.spec.hostNetwork",
        workers(podTemplate={"spec": {"hostNetwork": "true"}}),
        "write true without quotes",
    ),
    Case(
        "context-length",
        "spec.data.maxResponseLength",
        {**hub_model("Qwen/Qwen2.5-0.5B-Instruct"), **gpus(), "data.maxResponseLength": 32_768},
        "use 32256 or less",
    ),
    Case(
        "context-length",
        "spec.rollout.maxModelLen",
        {**hub_model("Qwen/Qwen3-0.6B"), **gpus(), "rollout.maxModelLen": 131_072},
        "use 40960",
    ),
    Case(
        "command-launcher",
        "spec.framework.command[0]",
        {"framework.command": ["torchrun", "--nnodes=2", "--nproc-per-node=8", "train.py"]},
        "Ray actors",
        base=COMMAND,
    ),
    Case(
        "verl-cpus",
        f"{POD}.cpu",
        {"cluster.workers": [{**VERL["cluster"]["workers"][0], "resources": {"cpu": "8", "memory": "4Gi"}}]},
        "use 12 CPUs or more",
        base=VERL,
    ),
    Case("judge-model", f"{JUDGE}.model", judge(model="https://huggingface.co/Qwen/Qwen3-8B"), "use Qwen/Qwen3-8B"),
    Case("model-path", "spec.model.path", hub_model("/mnt/rlt/m/model.safetensors"), "use /mnt/rlt/m"),
    Case("host-memory", f"{POD}.memory", {"model.path": "Qwen/Qwen2.5-7B-Instruct"}, "use 25Gi or more", base=VERL),
    Case(
        "engine-memory",
        "spec.framework.command",
        {
            **gpus(8),
            "framework.command": [*COMMAND["framework"]["command"], "actor_rollout_ref.model.path=Qwen/Qwen2.5-72B"],
        },
        "use actor_rollout_ref.rollout.tensor_model_parallel_size=8",
        base=COMMAND,
    ),
    Case("multus", "spec.network.attach", {"network.attach": "multus", **gpus()}, "NetworkAttachmentDefinition"),
    *(
        Case("command", f"spec.framework.command[{index}]", {"framework.command": words}, "bash, -c", base=COMMAND)
        for index, words in (
            (0, ["cd", "/workspace", "&&", "python3", "train.py"]),
            (2, ["python3", "train.py", "|", "tee", "log"]),
            (2, ["python3", "train.py", "2>&1"]),
            (0, ["A=1", "python3", "train.py"]),
            (0, ["source", "env.sh"]),
        )
    ),
    # batches
    Case("batch-divisibility", MINI, {"training.ppoMiniBatchSize": 12}, "use 8 or 16", cel=True),
    Case(
        "batch-divisibility",
        MINI,
        {"training.trainBatchSize": 256, "training.ppoMiniBatchSize": 64, **gpus(8, 3)},
        "use 72, and trainBatchSize 288",
    ),
    Case("batch-divisibility", MINI, {"training.ppoMiniBatchSize": 64}, "use 32", cel=True),
    Case(
        "batch-divisibility", MINI, {"training.trainBatchSize": None, "training.ppoMiniBatchSize": 96}, "use 64 or 128"
    ),
    Case("batch-divisibility", TRAIN, {"training.trainBatchSize": 31}, "use 30 or 32"),
    Case("batch-divisibility", TRAIN, {"training.trainBatchSize": 100, **gpus(8, 4)}, "use 96 or 128"),
    Case(
        "batch-divisibility",
        MINI,
        {"training.trainBatchSize": 96, "training.ppoMiniBatchSize": 12, **gpus()},
        "use 8 or 16",
    ),
    Case(
        "batch-divisibility",
        TRAIN,
        {"training.trainBatchSize": 6, "training.contextParallelSize": 2, **gpus()},
        "use 4 or 8",
    ),
    Case(
        "batch-divisibility",
        "spec.training.warmup.batchSize",
        {"training.warmup.steps": 1, "training.warmup.batchSize": 5},
        "use 4 or 6",
    ),
    Case("batch-chunks", TRAIN, gpus(8, 8), "use 64"),
    Case("batch-chunks", MINI, {"training.ppoMiniBatchSize": 1}, "use 2"),
    *(
        Case(
            "batch-divisibility",
            MINI,
            {"training.ppoMiniBatchSize": 1, "rollout.responsesPerPrompt": 2},
            "use 4",
            base=base,
        )
        for base in (VERL, OPENRLHF, ROLL)
    ),
    Case(
        "batch-divisibility",
        TRAIN,
        {"training.trainBatchSize": 9, "rollout.responsesPerPrompt": 2},
        "use 8 or 12",
        base=VERL,
    ),
    Case(
        "command-arguments",
        "spec.framework.command[3]",
        {**gpus(), "framework.command": [*COMMAND["framework"]["command"], "trainer.n_gpus_per_node=0"]},
        "use 1 or more",
        base=COMMAND,
    ),
    Case("micro-batch", MICRO, {"training.ppoMicroBatchSizePerDevice": 48}, "use 32 or 64"),
    Case("group-size", N, {"rollout.responsesPerPrompt": 1}, "use 2"),
    Case("group-size", N, {"rollout.responsesPerPrompt": 1, "algorithm.advEstimator": "rloo"}, "use 2"),
    Case(
        "group-size",
        "spec.algorithm.filterGroups",
        {
            "rollout.responsesPerPrompt": 1,
            "algorithm.advEstimator": "gae",
            "algorithm.critic": {},
            "algorithm.filterGroups": {},
        },
    ),
    Case("dynamic-batch", TOKENS, {"training.useDynamicBsz": True}, "use 2048"),
    Case(
        "dynamic-batch", TOKENS, {"training.useDynamicBsz": True, "training.ppoMaxTokenLenPerDevice": 1000}, "use 1024"
    ),
    Case("dynamic-batch", TOKENS, {"training.ppoMaxTokenLenPerDevice": 16384}),
    # learning
    Case(
        "lr-decay",
        "spec.training.lrSchedule.decaySteps",
        {"training.lrSchedule.decaySteps": 0},
        "use totalSteps 10",
        cel=True,
    ),
    Case(
        "lr-decay",
        "spec.training.lrSchedule.warmupSteps",
        {"training.lrSchedule.warmupSteps": 9, "training.lrSchedule.decaySteps": 8},
        "use 8",
        cel=True,
    ),
    Case("lr-decay", "spec.training.lrSchedule.warmupSteps", {"training.lrSchedule.warmupSteps": 11}, "use 10"),
    Case("training-end", "spec.training.totalEpochs", {"training.totalEpochs": 2}, cel=True),
    Case(
        "clip-ratio",
        "spec.algorithm.clipRatioLow",
        {"algorithm.clipRatioLow": 0.3, "algorithm.clipRatioHigh": 0.28},
        "use 0.28",
        cel=True,
    ),
    Case("clip-ratio", "spec.algorithm.clipRatioHigh", {"algorithm.clipRatioHigh": 0.1}, "use 0.2"),
    Case(
        "clip-ratio",
        "spec.algorithm.clipRatioHigh",
        {"algorithm.convention": "trl", "algorithm.policyLoss": "cispo"},
        "use 5.0",
    ),
    Case("critic", CRITIC, {"algorithm.advEstimator": "gae"}),
    Case("critic", CRITIC, {"algorithm.critic": {}}),
    Case(
        "overlong-buffer", "spec.algorithm.overlongBuffer.length", {"algorithm.overlongBuffer.length": 513}, "use 512"
    ),
    Case("reward-choice", "spec.rewards[0]", {"rewards": [{"weight": 1}]}, cel=True),
    Case("reward-choice", "spec.rewards[0]", {"rewards": [{"name": "exact", "model": "m"}]}, cel=True),
    Case("reward-choice", "spec.rewards[0].options", {"rewards": [{"model": "m", "options": {"a": 1}}]}, cel=True),
    Case(
        "reward-options",
        "spec.rewards[0].options.methd",
        {"rewards": [{"name": "gsm8k", "options": {"methd": "flexible"}}]},
        "the options of gsm8k are: method",
    ),
    Case("reward-options", "spec.rewards[0].options.max", {"rewards": [{"name": "length", "options": {"min": 5}}]}),
    Case(
        "own-function",
        "spec.algorithm.advantageFunction",
        {"algorithm.advantageFunction.name": "mine:advantage", "algorithm.advEstimator": "rloo"},
        "remove one of them",
    ),
    Case(
        "own-function",
        "spec.algorithm.policyLossFunction",
        {"algorithm.policyLossFunction.name": "mine:loss", "algorithm.policyLoss": "gspo"},
    ),
    Case(
        "rejection",
        f"{CORRECTION}.rejectionThreshold",
        {"algorithm.rolloutCorrection.rejection": "token_k2"},
        "such as 1.01",
    ),
    Case(
        "rejection",
        f"{CORRECTION}.rejectionThreshold",
        {"algorithm.rolloutCorrection.rejectionThreshold": 0.5},
    ),
    Case(
        "rejection",
        f"{CORRECTION}.rejectionThreshold",
        {"algorithm.rolloutCorrection": {"rejection": "seq_mean_k1", "rejectionThreshold": 0.5}},
        "use a value above 1",
    ),
    Case(
        "rejection",
        f"{CORRECTION}.lowerThreshold",
        {"algorithm.rolloutCorrection": {"lowerThreshold": 3.0, "threshold": 2.0}},
        "use a value below 2.0",
        cel=True,
    ),
    Case(
        "bypass-mode",
        f"{CORRECTION}.lowerThreshold",
        {"algorithm.rolloutCorrection": {"bypassMode": True, "lowerThreshold": 0.5}},
        "remove one of them",
    ),
    Case(
        "truncated-sampling",
        "spec.rollout.topP",
        {"algorithm.rolloutCorrection.level": "sequence", "rollout.topP": 0.95},
        "use topP 1, or rolloutCorrection.level token",
    ),
    Case(
        "truncated-sampling",
        "spec.rollout.topP",
        {"algorithm.rolloutCorrection.lowerThreshold": 0.5, "rollout.topP": 0.4},
        "use topP 1, or remove lowerThreshold",
    ),
    Case(
        "truncated-sampling",
        "spec.rollout.topK",
        {"algorithm.rolloutCorrection": {"rejection": "seq_mean_k1", "rejectionThreshold": 1.01}, "rollout.topK": 50},
        "use topK -1, or remove rejection",
    ),
    Case(
        "truncated-sampling",
        "spec.rollout.minP",
        {"algorithm.rolloutCorrection": {"level": "sequence"}, "rollout.minP": 0.1},
        "use minP 0, or rolloutCorrection.level token",
    ),
    Case(
        "truncated-sampling",
        "spec.rollout.topP",
        {"algorithm.rolloutCorrection.bypassMode": True, "rollout": {"topP": 0.5, "topK": 50}},
        "use topP 1 and topK -1, or bypassMode false",
    ),
    Case(
        "data-source",
        "spec.data.mixture",
        {"data": {"preset": "arithmetic", "mixture": [{"source": "a", "weight": 2}]}},
        "remove it, or add files",
    ),
    Case(
        "data-source",
        "spec.data.curriculum",
        {"data": {"preset": "arithmetic", "curriculum": {"column": "level"}}},
        "remove it, or add files",
    ),
    Case(
        "top-entropy",
        "spec.algorithm.topEntropyQuantile",
        {"algorithm.topEntropyQuantile": 0.2, "algorithm.rolloutCorrection.bypassMode": True},
        "remove one of them",
    ),
    Case(
        "top-entropy",
        "spec.algorithm.topEntropyQuantile",
        {"algorithm.topEntropyQuantile": 0.2, "algorithm.policyLoss": "geo_mean"},
        "remove one of them",
    ),
    Case(
        "covariance",
        "spec.algorithm.policyLoss",
        {"algorithm.policyLoss": "kl_cov", "algorithm.distillation": {"modelPath": "/mnt/teacher"}},
        "remove one of them",
    ),
    Case(
        "covariance",
        "spec.algorithm.clipCovLb",
        {"algorithm.policyLoss": "clip_cov", "algorithm.clipCovLb": 6.0},
        "use 4",
    ),
    Case(
        "top-entropy",
        "spec.algorithm.topEntropyQuantile",
        {
            "algorithm.topEntropyQuantile": 0.2,
            "algorithm.distillation": {
                "modelPath": "/mnt/teacher",
                "lossMode": "forward_kl_topk",
                "useTaskRewards": False,
            },
        },
        "remove one of them",
    ),
    Case(
        "distillation-topk",
        "spec.algorithm.distillation.topk",
        {
            "algorithm.distillation": {"modelPath": "/mnt/teacher", "lossMode": "forward_kl_topk", "topk": 300},
        },
        "use 262 or less",
    ),
    Case(
        "head-memory",
        "spec.cluster.head.resources.memory",
        {
            "algorithm.distillation": {"modelPath": "/mnt/teacher", "lossMode": "forward_kl_topk"},
            "training.trainBatchSize": 4096,
            "data.maxResponseLength": 4096,
        },
        "or a lower topk",
    ),
    Case(
        "router-loss",
        "spec.algorithm.routerAuxLossCoef",
        {"algorithm.routerAuxLossCoef": 0.01, "training.contextParallelSize": 2, **hub_model("mine/mixture"), **gpus()},
        "remove one of them",
    ),
    Case(
        "router-bias",
        "spec.algorithm.routerBiasUpdateRate",
        {"algorithm.routerBiasUpdateRate": 0.001, "model.lora": {"rank": 8}},
        "remove one of them",
    ),
    Case("router-replay", "spec.algorithm.routerReplay", {"algorithm.routerReplay": "R2"}, "remove it"),
    Case(
        "head-memory",
        "spec.cluster.head.resources.memory",
        {
            "algorithm.routerReplay": "R3",
            "training.trainBatchSize": 1024,
            "data.maxResponseLength": 4096,
            **hub_model("Qwen/Qwen3-30B-A3B"),
            **gpus(8, replicas=8, memory="141Gi", pod="1Ti"),
        },
        "or a lower trainBatchSize",
    ),
    *(
        Case("router-replay", "spec.algorithm.routerReplay", {**hub_model("mine/mixture"), **change}, fix)
        for change, fix in (
            (
                {"algorithm.routerReplay": "R2", "algorithm.rolloutCorrection": {"bypassMode": True}},
                "remove one of them",
            ),
            ({"algorithm.routerReplay": "R3"}, "use rollout.engine: transformers, or routerReplay: R2"),
            (
                {
                    "algorithm.routerReplay": "R3",
                    "rollout.engine": "transformers",
                    "rollout.multiTurn": {"environment": "calculator"},
                },
                "remove one of them",
            ),
            (
                {"algorithm.routerReplay": "R3", "rollout.engineKwargs": {"enable_prefix_caching": False}, **gpus()},
                "remove one of them",
            ),
        )
    ),
    Case("reward-choice", "spec.rewards[0].env", {"rewards": [{"name": "exact", "env": [TOKEN]}]}, cel=True),
    Case("reward-choice", "spec.rewards[0].concurrency", {"rewards": [{"model": "m", "concurrency": 2}]}, cel=True),
    Case("env-value", "spec.rewards[0].env[0]", {"rewards": [{**SCORING, "env": [{"name": "TOKEN"}]}]}, cel=True),
    Case(
        "masked-value",
        "spec.rewards[0].env[0].value",
        {"rewards": [{**SCORING, "env": [{"name": "TOKEN", "value": "***"}]}]},
    ),
    Case("judge", f"{JUDGE}.prompt", judge(prompt="Grade it."), "add {response}", cel=True),
    Case("judge", f"{JUDGE}.minScore", judge(minScore=1), "use a lower value", cel=True),
    Case("judge", f"{JUDGE}.scorePattern", judge(scorePattern="score ([0-9]"), "use one such as"),
    Case("judge", f"{JUDGE}.scorePattern", judge(scorePattern="[0-9]"), "use one such as"),
    Case("judge", "spec.rewards[0].options.messages", judge({"messages": []}), "remove it"),
    Case("conversation", CONVERSATION, {"rollout.multiTurn": {"maxTurns": 2}}, "environment: calculator", cel=True),
    Case(
        "conversation",
        CONVERSATION,
        {"rollout.multiTurn": {"environment": "calculator", "tools": [{"name": "python"}]}},
        "keep one of them",
        cel=True,
    ),
    Case(
        "conversation",
        f"{CONVERSATION}.environment",
        {"rollout.multiTurn": {"environment": "Calculator"}},
        "did you mean calculator?",
    ),
    Case(
        "conversation",
        CONVERSATION,
        {"rollout.multiTurn": {"environment": "calculator", "agent": {"name": "my_agent:solve"}}},
        "keep one of them",
        cel=True,
    ),
    Case(
        "conversation",
        CONVERSATION,
        {"rollout.multiTurn": {"environment": "calculator", "openenv": {"url": "http://echo:8000"}}},
        "keep one of them",
        cel=True,
    ),
    Case("openenv-url", f"{OPENENV}.url", openenv(url="ws://echo:8000/ws"), "use ws://echo:8000"),
    Case("openenv", f"{OPENENV}.actionPattern", openenv(actionPattern="<move>.*</move>"), "use one such as"),
    Case("openenv", f"{OPENENV}.actionPattern", openenv(actionPattern="<move>(.*</move>"), "use one such as"),
    Case("conversation", f"{CONVERSATION}.tools[0]", tools({}), "add one of them", cel=True),
    Case("conversation", f"{CONVERSATION}.tools[0].mcp", tools({"mcp": {}}), "add one of them", cel=True),
    Case(
        "conversation",
        f"{CONVERSATION}.tools[0].mcp.apiKey",
        tools({"mcp": {"command": ["server"], "apiKey": {"name": "search", "key": "token"}}}),
        "remove it",
        cel=True,
    ),
    Case(
        "conversation",
        f"{CONVERSATION}.tools[0].mcp.env",
        tools({"mcp": {"url": "http://search/mcp", "env": [TOKEN]}}),
        "remove it",
        cel=True,
    ),
    Case(
        "conversation",
        f"{CONVERSATION}.tools[0].mcp.sandbox",
        tools({"mcp": {"url": "http://search/mcp", "sandbox": True}}, sandbox={}),
        "remove it",
        cel=True,
    ),
    Case(
        "sandbox",
        f"{CONVERSATION}.tools[0].mcp.sandbox",
        tools({"mcp": {"command": ["server"], "sandbox": True}}),
        "add rollout.multiTurn.sandbox",
    ),
    Case(
        "sandbox",
        f"{CONVERSATION}.tools[0].mcp.env[0]",
        tools({"mcp": {"command": ["server"], "env": [TOKEN], "sandbox": True}}, sandbox={}),
        "use a value without Secrets",
    ),
    Case("reward-name", "spec.rewards[0].name", {"rewards": [{"name": "gms8k"}]}, "did you mean gsm8k?"),
    # layout and scheduling
    Case(
        "parallel-sizes",
        "spec.training.contextParallelSize",
        {"training.contextParallelSize": 3, "model.useRemovePadding": True, **gpus()},
        "6 or 9 train workers",
    ),
    Case(
        "context-parallel",
        "spec.training.contextParallelSize",
        {"training.contextParallelSize": 2, "model.useRemovePadding": False, **gpus()},
    ),
    Case(
        "context-parallel",
        "spec.algorithm.critic.useRemovePadding",
        {
            "training.contextParallelSize": 2,
            "algorithm.advEstimator": "gae",
            "algorithm.critic": {"useRemovePadding": False},
            **gpus(),
        },
        "use true",
    ),
    Case(
        "rollout-engine",
        "spec.rollout.tensorParallelSize",
        {"rollout.engine": "transformers", "rollout.tensorParallelSize": 2, **gpus()},
    ),
    Case(
        "rollout-engine",
        "spec.rollout.engineKwargs",
        {"rollout.engine": "transformers", "rollout.engineKwargs": {"block_size": 16}},
        "rollout.engine: vllm",
    ),
    Case(
        "expert-parallel-size",
        "spec.training.expertParallelSize",
        {"training.expertParallelSize": 3, **hub_model("mine/mixture"), **gpus()},
        "use 2 or 4",
    ),
    Case(
        "expert-parallel-size",
        "spec.training.expertParallelSize",
        {
            "training.expertParallelSize": 6,
            "training.trainBatchSize": 48,
            **hub_model("Qwen/Qwen3-30B-A3B"),
            **gpus(6, replicas=8, memory="141Gi", pod="1Ti"),
        },
        "use 4 or 8",
    ),
    Case(
        "expert-parallel",
        "spec.training.expertParallelSize",
        {"training.expertParallelSize": 2, **gpus()},
        "remove it",
    ),
    Case(
        "expert-parallel",
        "spec.training.expertParallelSize",
        {"training.expertParallelSize": 4, "training.fsdp.fsdpSize": 4, **hub_model("mine/mixture"), **gpus()},
        "remove one of them",
    ),
    Case(
        "expert-parallel",
        "spec.training.expertParallelSize",
        {"training.expertParallelSize": 4, "model.lora.rank": 8, **hub_model("mine/mixture"), **gpus()},
        "remove one of them",
    ),
    Case(
        "synced-adapters",
        "spec.model.lora.syncAdapters",
        {"model.lora": {"rank": 8, "syncAdapters": True}, "rollout.engine": "transformers"},
        "use vllm",
    ),
    Case(
        "synced-adapters",
        "spec.model.lora.syncAdapters",
        {"model.lora": {"rank": 8, "syncAdapters": True, "useDora": True}},
        "remove one of them",
    ),
    Case("synced-adapters", "spec.model.lora.rank", {"model.lora": {"rank": 600, "syncAdapters": True}}, "use 512"),
    Case(
        "quantization",
        "spec.rollout.quantization",
        {"rollout.quantization": "fp8", "rollout.engine": "transformers", "model.dtype": "bfloat16"},
        "use vllm, or remove quantization",
    ),
    Case("quantization", "spec.rollout.quantization", {"rollout.quantization": "fp8"}, "use bfloat16"),
    Case(
        "quantization",
        "spec.rollout.quantization",
        {"rollout.quantization": "fp8", "model.lora": {"rank": 8, "syncAdapters": True}, "model.dtype": "bfloat16"},
        "remove syncAdapters",
    ),
    Case(
        "kept-cache",
        "spec.rollout.staleness.kvCache",
        {"rollout.staleness": {"kvCache": "keep"}, "rollout.engine": "transformers"},
        "use vllm, or remove kvCache",
    ),
    Case(
        "kept-cache",
        "spec.rollout.staleness.kvCache",
        {"rollout.staleness": {"kvCache": "keep"}, "rollout.freeCacheEngine": True},
        "use false, or remove kvCache",
    ),
    Case(
        "kept-cache",
        "spec.rollout.staleness.kvCache",
        {"rollout.staleness": {"kvCache": "keep"}, "data.imageKey": "images"},
        "remove one of them",
    ),
    Case(
        "speculation",
        "spec.rollout.speculativeConfig",
        {"rollout.speculativeConfig": {"method": "ngram"}, "rollout.engine": "transformers"},
        "use vllm, or remove speculativeConfig",
    ),
    Case(
        "speculation",
        "spec.rollout.speculativeConfig",
        {"rollout.speculativeConfig": {"method": "ngram"}, "rollout.minP": 0.1},
        "use minP 0, or remove speculativeConfig",
    ),
    Case(
        "speculation",
        "spec.rollout.speculativeConfig",
        {"rollout.speculativeConfig": {"method": "ngram"}, "model.lora": {"rank": 8, "syncAdapters": True}},
        "remove one of them",
    ),
    Case(
        "speculation",
        "spec.rollout.speculativeConfig.promptLookupMin",
        {"rollout.speculativeConfig": {"promptLookupMin": 6}},
        "use 5 or less",
        cel=True,
    ),
    Case("liger", "spec.model.useLiger", {"model.useLiger": True}, "use false"),
    Case("liger", "spec.model.useLiger", {"model.useLiger": True, **accelerator("amd.com/gpu")}, "use false"),
    Case(
        "liger",
        "spec.model.useLiger",
        {"model.useLiger": True, "training.useTorchCompile": True, **gpus()},
        "use one of them",
    ),
    Case(
        "8bit-moments",
        "spec.training.optimizer",
        {"training.optimizer": "adamw_8bit", "training.fsdp.optimizerOffload": True},
        "use adamw, or remove optimizerOffload",
    ),
    Case("fsdp-size", "spec.training.fsdp.fsdpSize", {"training.fsdp.fsdpSize": 3, **gpus()}, "use 2 or 4"),
    Case(
        "reference-sharding",
        "spec.training.reference.fsdpSize",
        {"training.fsdp.fsdpSize": 8, "training.reference.fsdpSize": 4, **gpus()},
        "use 8",
        cel=True,
    ),
    Case(
        "rollout-tensor-parallel",
        "spec.rollout.tensorParallelSize",
        {"rollout.tensorParallelSize": 3, **gpus()},
        "use 2 or 4",
    ),
    Case(
        "rollout-tensor-parallel",
        "spec.rollout.tensorParallelSize",
        {"rollout.tensorParallelSize": 16, **gpus()},
        "use 8",
    ),
    Case(
        "rollout-tensor-parallel",
        "spec.rollout.tensorParallelSize",
        separate_engines(tensor_parallel_size=16, replicas=3),
        "use 8, or set replicas to 2 or 4",
    ),
    Case(
        "rollout-worker-group",
        "spec.rollout.workerGroup",
        {"rollout.mode": "separate", "rollout.workerGroup": "rollouts"},
    ),
    Case(
        "rollout-worker-group",
        "spec.rollout.workerGroup",
        {"rollout.mode": "separate", "rollout.workerGroup": "workers"},
    ),
    Case(
        "rollout-worker-group",
        "spec.rollout.workerGroup",
        {"rollout.mode": "colocated", "rollout.workerGroup": "workers"},
        cel=True,
    ),
    Case(
        "min-replicas",
        "spec.cluster.workers[1].minReplicas",
        separate_engines(tensor_parallel_size=1, replicas=4, minReplicas=5),
        "use 4 or less",
    ),
    Case(
        "min-replicas",
        "spec.cluster.workers[1].minReplicas",
        separate_engines(tensor_parallel_size=16, replicas=4, minReplicas=3),
        "use 2 or 4",
    ),
    Case("min-replicas", "spec.cluster.workers[0].minReplicas", workers(minReplicas=1), "remove it"),
    Case("min-replicas", "spec.cluster.workers[0].minReplicas", workers(minReplicas=1), "remove it", base=COMMAND),
    Case("min-replicas", "spec.cluster.workers[0].minReplicas", workers(minReplicas=1), "remove it", base=VERL),
    Case("max-replicas", "spec.cluster.workers[1].minReplicas", elastic(minReplicas=None), "such as 1", cel=True),
    Case("max-replicas", "spec.cluster.workers[1].maxReplicas", elastic(maxReplicas=3), "use 4 or more", cel=True),
    Case(
        "max-replicas",
        "spec.cluster.workers[1].maxReplicas",
        {**elastic(), "rollout.tensorParallelSize": 16},
        "remove it, or use tensorParallelSize: 8",
    ),
    *(
        Case("max-replicas", "spec.cluster.workers[1].maxReplicas", {**elastic(), "scheduling": each}, "remove one")
        for each in (
            {"schedulerName": "yunikorn", "queueName": "q"},
            {"schedulerName": "volcano"},
            {"schedulerName": "yunikorn", "gang": True},
        )
    ),
    Case(
        "max-replicas",
        "spec.cluster.workers[1].maxReplicas",
        {**elastic(), **hub_model("s3://models/qwen")},
        "set storage.claimName",
    ),
    Case("max-replicas", "spec.cluster.workers[0].maxReplicas", workers(maxReplicas=2), "remove it", cel=True),
    Case(
        "autoscale",
        "spec.cluster.workers[1].maxReplicas",
        elastic(maxReplicas=None, autoscale=True),
        "add the largest number of pods, such as 4",
        cel=True,
    ),
    Case(
        "autoscale",
        "spec.cluster.workers[1].autoscale",
        {
            **elastic(autoscale=True),
            "observability.metricRules": {rule: {"action": "none"} for rule in ("generationBound", "trainingBound")},
        },
        "remove it",
    ),
    Case("rollout-replicas", "spec.rolloutReplicas", {**elastic(), "rolloutReplicas": 9}, "use 8 or less", cel=True),
    Case("rollout-replicas", "spec.rolloutReplicas", {**elastic(), "rolloutReplicas": 1}, "use 2 or more", cel=True),
    Case("rollout-replicas", "spec.rolloutReplicas", {"rolloutReplicas": 1}, "remove it", cel=True),
    Case(
        "rollout-replicas",
        "spec.rolloutReplicas",
        {**separate_engines(tensor_parallel_size=8, replicas=4, minReplicas=2), "rolloutReplicas": 3},
        "remove it",
        cel=True,
    ),
    Case("gang", "spec.scheduling.gang", {"scheduling": {"gang": True}}, "Kueue's queueName"),
    Case("gang", "spec.scheduling.gang", {"scheduling": {"gang": True, "schedulerName": "mine", "queueName": "q"}}),
    Case("queue", "spec.scheduling.queueName", {"scheduling": {"schedulerName": "kai-scheduler"}}),
    Case("queue", "spec.cluster.workers[0].name", {**workers(name="head"), "scheduling": {"queueName": "q"}}),
    Case("queue", "spec.cluster.workers", {**groups(*"abcdefgh"), "scheduling": {"queueName": "q"}}, base=COMMAND),
    Case("ray-cpus", "spec.cluster.workers[0].numCpus", workers(numCpus=64), "use 2"),
    Case("ray-cpus", "spec.cluster.workers[0].numCpus", workers(numCpus=64), "use 2", base=COMMAND),
    Case("worker-groups", "spec.cluster.workers", groups("train", "generate"), "framework.type: command"),
    Case("worker-groups", "spec.cluster.workers[1].name", groups("a", "a"), "use a-2", cel=True, base=COMMAND),
    Case("worker-groups", "spec.cluster.workers[1].name", groups(None, "workers"), cel=True, base=COMMAND),
    Case("worker-groups", "spec.cluster.workers[1]", groups(None, None), "use workers-2", cel=True, base=COMMAND),
    # lengths and memory
    Case("max-model-len", "spec.rollout.maxModelLen", {"rollout.maxModelLen": 1000}, "use 1024"),
    Case(
        "max-model-len",
        "spec.rollout.maxModelLen",
        {"data.maxPromptLength": 600, "data.maxResponseLength": 600, "rollout.maxModelLen": 1000},
        "use 1200",
        cel=True,
    ),
    Case(
        "max-num-batched-tokens",
        "spec.rollout.maxNumBatchedTokens",
        {"rollout.maxNumBatchedTokens": 100, "rollout.maxNumSeqs": 256},
        "use 1024",
        cel=True,
    ),
    Case(
        "max-num-batched-tokens",
        "spec.rollout.maxNumBatchedTokens",
        {"rollout.maxNumBatchedTokens": 512, "rollout.enableChunkedPrefill": False},
        "use 1024",
    ),
    Case(
        "max-num-batched-tokens",
        "spec.rollout.maxNumBatchedTokens",
        {"rollout.engine": "vllm", "rollout.maxNumBatchedTokens": 512},
        "use 1024",
    ),
    Case(
        "chunked-prefill",
        "spec.rollout.enableChunkedPrefill",
        {"rollout.engine": "vllm", "rollout.enableChunkedPrefill": True},
        "remove it",
    ),
    Case(
        "engine-memory",
        "spec.rollout.gpuMemoryUtilization",
        {"model": QWEN_7B, "rollout.gpuMemoryUtilization": 0.1, **gpus()},
        "use 0.35",
    ),
    Case(
        "engine-memory",
        "spec.rollout.gpuMemoryUtilization",
        {**separate_engines(1, 1), "model": {**QWEN_7B, "path": "Qwen/Qwen2.5-72B"}},
        "use rollout.tensorParallelSize: 8",
    ),
    Case(
        "engine-memory",
        "spec.rollout.gpuMemoryUtilization",
        {"model": {**QWEN_7B, "path": "Qwen/Qwen3-30B-A3B"}, **gpus(8, 4)},
        "use rollout.tensorParallelSize: 2, or gpuMemoryUtilization 0.85 or more",
    ),
    Case("accelerator-memory", "spec.cluster.workers[0].accelerator.memory", {"model": QWEN_7B, **gpus(1)}),
    Case(
        "accelerator-memory",
        "spec.rollout.gpuMemoryUtilization",
        {"model": QWEN_7B, "rollout.gpuMemoryUtilization": 0.9, **gpus()},
        "use 0.8",
    ),
    Case("pod-memory", "spec.cluster.workers[0].resources.memory", {"model": QWEN_7B}, "use 63Gi"),
    Case(
        "pod-memory",
        "spec.cluster.workers[0].resources.memory",
        {"model": QWEN_7B, "training.fsdp.optimizerOffload": True, **gpus(pod="40Gi")},
        "use 50Gi",
    ),
    Case("kv-cache", "spec.rollout.kvCacheSpace", {"data.maxResponseLength": 1000000}, "use 2"),
    Case("resources", "spec.cluster.workers[0].resources.cpu", workers(resources={"cpu": "0", "memory": "4Gi"})),
    Case("resources", POD, {"cluster.workers": [{"replicas": 2}]}),
    Case(
        "shared-memory",
        "spec.cluster.workers[0].resources.sharedMemory",
        workers(resources={"cpu": "1", "memory": "4Gi", "sharedMemory": "4096Mi"}),
        "use 1024Mi",
        cel=True,
    ),
    Case("shared-memory", "spec.cluster.workers[0].resources.memory", gpus(pod="16Gi"), "use 23Gi"),
    Case(
        "object-store",
        "spec.cluster.workers[0].resources.memory",
        workers(resources={"cpu": "1", "memory": "256Mi"}),
        "use 500Mi",
    ),
    Case(
        "object-store",
        "spec.cluster.workers[0].resources.sharedMemory",
        workers(resources={"cpu": "1", "memory": "4Gi", "sharedMemory": "64Mi"}),
        "use 125Mi",
    ),
    # volumes
    Case(
        "storage-claim",
        "spec.storage.storageClassName",
        {"storage.claimName": "c", "storage.storageClassName": "nfs", "storage.size": "1Ti"},
        cel=True,
    ),
    Case("bucket", BUCKET, {"storage.bucket": "s3://runs/a", "storage.claimName": "c"}, "remove one of them", cel=True),
    Case(
        "bucket",
        BUCKET,
        {"storage.bucket": "s3://runs/a", "storage.storageClassName": "nfs", "storage.size": "1Ti"},
        cel=True,
    ),
    *(
        Case("bucket", BUCKET, {"storage.bucket": "s3://runs/a"}, "use claimName", base=base)
        for base in (COMMAND, VERL, OPENRLHF, ROLL)
    ),
    Case("bucket", "spec.storage.endpoint", {"storage.endpoint": "https://s3.example"}, "add bucket"),
    Case("bucket", "spec.storage.secretName", {"storage.secretName": "s3"}, "add bucket"),
    Case(
        "bucket",
        "spec.observability.recordSteps",
        {"storage.bucket": "s3://runs/a", "observability.recordSteps": [1]},
        "use storage.claimName",
    ),
    Case(
        "bucket",
        "spec.observability.profiler",
        {"storage.bucket": "s3://runs/a", "observability.profiler": {"steps": [1]}},
        "use storage.claimName",
    ),
    Case(
        "bucket",
        "spec.checkpoint.resume",
        {"storage.bucket": "s3://runs/a", "checkpoint": {"resume": "job", "resumeFromJob": "stage-1"}},
        "use auto",
    ),
    Case(
        "bucket",
        "spec.checkpoint.resumeFromPath",
        {
            "storage.bucket": "s3://runs/a",
            "checkpoint": {"resume": "path", "resumeFromPath": "/mnt/rlt/runs/x/checkpoints/step-5"},
        },
        "use a checkpoint in the bucket",
    ),
    Case(
        "in-place",
        "spec.failurePolicy.restartPolicy",
        {"storage.bucket": "s3://runs/a", "failurePolicy.restartPolicy": "InPlace"},
        "use Recreate",
    ),
    Case("schema", BUCKET, {"storage.bucket": "gs://runs/a"}, cel=True),
    Case(
        "objects",
        "spec.framework.prepare",
        {**hub_model("s3://bucket/q"), "framework.prepare": [{"name": f"s{n}", "command": ["a"]} for n in range(16)]},
        "join two steps",
    ),
    Case(
        "objects",
        "spec.evaluation[0].data.files[63]",
        {
            **files(*(f"s3://bucket/{n}.jsonl" for n in range(64))),
            **suite(data={"files": [f"s3://bucket/test/{n}.jsonl" for n in range(64)]}),
        },
        "join files",
    ),
    Case("storage-claim", "spec.storage.size", {"storage.storageClassName": "nfs"}),
    Case("storage-claim", "spec.storage.size", {"storage.size": "1Ti"}),
    Case("checkpoint-volume", "spec.storage.claimName", {"checkpoint.saveFreq": 5}),
    Case("mount-path", "spec.storage.mountPath", {"storage.claimName": "c", "storage.mountPath": "/etc"}),
    Case("mount-path", "spec.storage.mountPath", {"storage.claimName": "c", "storage.mountPath": "/dev/shm"}),
    Case(
        "mount-path",
        "spec.storage.modelCache.mountPath",
        {"storage.mountPath": "/m", "storage.modelCache.claimName": "c", "storage.modelCache.mountPath": "/m"},
        cel=True,
    ),
    Case(
        "mount-path",
        "spec.storage.modelCache.mountPath",
        {"storage.modelCache.claimName": "c", "storage.modelCache.mountPath": "/mnt/rlt/models"},
    ),
    Case("mount-path", "spec.storage.hfHome", {"storage.hfHome": "/etc/rlt/hf"}),
    Case("mount-path", "spec.storage.mountPath", {"storage.claimName": "c", "storage.mountPath": "/usr"}),
    Case("resume", "spec.checkpoint.resumeFromPath", {"checkpoint.resume": "path"}),
    Case(
        "resume", "spec.checkpoint.resumeFromPath", {"checkpoint": {"resume": "path", "resumeFromPath": "/mnt/rlt/a"}}
    ),
    Case(
        "resume",
        "spec.checkpoint.resumeFromPath",
        {"checkpoint.resume": "auto", "checkpoint.resumeFromPath": "/c/step-1"},
        cel=True,
    ),
    Case(
        "resume",
        "spec.checkpoint.resumeFromPath",
        {"checkpoint": {"resume": "path", "resumeFromPath": "s3://runs/a/checkpoints"}},
        "add the step",
    ),
    Case(
        "resume",
        "spec.checkpoint.resumeFromPath",
        {"checkpoint": {"resume": "path", "resumeFromPath": "s3://runs/../step-5"}},
        "write s3://BUCKET/KEY",
    ),
    Case(
        "resume",
        "spec.checkpoint.resumeFromPath",
        {
            "checkpoint": {"resume": "path", "resumeFromPath": "s3://runs/a/step-5"},
            "training.warmup": {"steps": 1, "batchSize": 8},
        },
        "copy both to a volume",
    ),
    Case(
        "resume",
        "spec.checkpoint.resumeFromPath",
        {"checkpoint": {"resume": "path", "resumeFromPath": "s3://runs/a/global_step_5"}},
        "download it to a volume",
        base=VERL,
    ),
    Case(
        "schema",
        "spec.checkpoint.resumeFromPath",
        {"checkpoint": {"resume": "path", "resumeFromPath": "gs://runs/a/step-5"}},
        cel=True,
    ),
    Case(
        "resume-from-job",
        "spec.checkpoint.resumeFromJob",
        {"checkpoint.resume": "job", "storage.claimName": "runs"},
    ),
    Case(
        "resume-from-job",
        "spec.storage.claimName",
        {"checkpoint": {"resume": "job", "resumeFromJob": "stage-1"}},
    ),
    Case(
        "resume-from-job",
        "spec.checkpoint.resumeFromJob",
        {"checkpoint.resume": "path", "checkpoint.resumeFromPath": "/c/step-1", "checkpoint.resumeFromJob": "stage-1"},
        cel=True,
    ),
    Case("keep-best", "spec.checkpoint.keepBest", {"checkpoint.keepBest": True}),
    Case(
        "keep-best",
        "spec.checkpoint.saveFreq",
        {"checkpoint.keepBest": True, **suite(every=2)},
        "use 2",
    ),
    Case(
        "keep-best",
        "spec.checkpoint.saveFreq",
        {"checkpoint.keepBest": True, "checkpoint.saveFreq": 5, **suite(every=4)},
        "use 4",
    ),
    # environment
    Case(
        "masked-value",
        "spec.cluster.env[0].value",
        {"cluster": {"env": [{"name": "HF_TOKEN", "value": "***"}]}},
        "use secretKeyRef",
    ),
    Case("env-name", ENV, env("NCCL_SOCKET_IFNAMES"), "did you mean NCCL_SOCKET_IFNAME?"),
    Case("env-name", ENV, env("NCCL_SOKCET_IFNAME"), "did you mean NCCL_SOCKET_IFNAME?"),
    Case("env-name", ENV, env("NCLL_DEBUG"), "did you mean NCCL_DEBUG?"),
    Case("env-name", ENV, env("nccl_debug"), "did you mean NCCL_DEBUG?"),
    Case("env-name", ENV, env("GLOO_SOCKET_IF_NAME"), "did you mean GLOO_SOCKET_IFNAME?"),
    Case("env-name", ENV, env("RCCL_MSCLL_ENABLE"), "did you mean RCCL_MSCCL_ENABLE?"),
    Case("env-name", ENV, env("VLLM_CPU_KV_CACHE_SPACE"), "did you mean VLLM_CPU_KVCACHE_SPACE?"),
    Case("env-name", ENV, env("HF_HUB_OFLINE"), "did you mean HF_HUB_OFFLINE?"),
    Case("env-name", ENV, env("TORCH_NCCL_BLOKING_WAIT"), "did you mean TORCH_NCCL_BLOCKING_WAIT?"),
    Case("env-value", "spec.cluster.env[0]", {"cluster.env": [{"name": "A"}]}, cel=True),
    Case("env-owner", ENV, env("ROCR_VISIBLE_DEVICES")),
    Case("env-owner", ENV, env("MASTER_ADDR"), base=COMMAND),
    Case("env-owner", ENV, env("RAY_AUTH_TOKEN")),
    Case("env-owner", ENV, env("RAY_REDIS_ADDRESS")),
    Case(
        "fault-tolerance",
        "spec.cluster.head.podTemplate.spec.containers[0].env[0].name",
        {"cluster.head": {"podTemplate": FAULT_TOLERANT}},
        "remove it",
    ),
    Case("rdma-env", "spec.cluster.env[0].value", {"network.require": "rdma", **env("NCCL_IB_DISABLE")}, "remove it"),
    Case(
        "ray-token",
        "spec.security.rayToken",
        {"security.rayToken": True, "cluster.rayVersion": "2.51.1"},
        "remove it",
    ),
    Case("parser", f"{CONVERSATION}.format", parsers(format="qwen_coder"), "use qwen3_coder"),
    Case("parser", f"{CONVERSATION}.format", parsers(format="none"), "use apertus or "),
    Case("parser", f"{CONVERSATION}.reasoningParser", parsers(reasoningParser="deepseek-r1"), "use deepseek_r1"),
    Case("agent", AGENT, agent(), "add one of them", cel=True),
    Case("agent", AGENT, agent(name="my_agent:solve", command=["mini"]), "keep one of them", cel=True),
    Case("agent", f"{AGENT}.configMap", agent(command=["mini"], configMap="my-agent"), "remove it"),
    Case("agent", f"{AGENT}.rewardFile", agent(name="my_agent:solve", rewardFile="reward.txt"), "remove it"),
    Case(
        "agent",
        f"{AGENT}.command",
        {"rollout.multiTurn": {"agent": {"command": ["mini"]}}},
        "add rollout.multiTurn.sandbox",
    ),
    Case("sandbox", SANDBOX, sandbox({}, tool="calculator"), "remove it"),
    Case("sandbox", SANDBOX, {"rollout.multiTurn": {"environment": "calculator", "sandbox": {}}}, "remove it"),
    Case("sandbox", SANDBOX, {**sandbox({}), "security.rayToken": False}, "use security.rayToken: true"),
    Case("sandbox", SANDBOX, {**sandbox({}), "cluster.rayVersion": "2.51.1"}, "Ray 2.52 or later"),
    Case("schema", f"{SANDBOX}.provider", sandbox({"provider": "pods"}), "did you mean Pods?", cel=True),
    Case("sandbox", f"{SANDBOX}.memory", sandbox({"memory": "64Mi"}), "use 128Mi or more"),
    Case("image", f"{SANDBOX}.image", sandbox({"image": "docker://python:3.12"}), "use python:3.12"),
    Case("label", f"{SANDBOX}.nodeSelector[a b]", sandbox({"nodeSelector": {"a b": "c"}}), "show-labels"),
    Case("schema", "spec.cluster.env[1]", env("A", "A"), "remove one", cel=True),
    Case("stop-timeout", "spec.cluster.env[0].value", stop_timeout("600"), "terminationGracePeriodSeconds: 600"),
    Case("stop-timeout", "spec.cluster.env[0].value", stop_timeout("5m"), "remove it", base=COMMAND),
    Case("debugger", ENV, {"observability.debugger": "ray", **env("RAY_DEBUG")}),
    Case(
        "debugger",
        "spec.cluster.env[1].name",
        {"cluster.env": [{"name": "RAY_DEBUG", "value": "legacy"}, {"name": "RAY_DEBUG_POST_MORTEM", "value": "1"}]},
    ),
    # labels, users, steps
    Case("label", "spec.cluster.head.nodeSelector[a b]", {"cluster.head.nodeSelector": {"a b": "c"}}),
    Case("label", "spec.cluster.head.nodeSelector.pool", {"cluster.head.nodeSelector": {"pool": "-"}}),
    Case("label", "spec.cluster.head.tolerations[0].key", {"cluster.head.tolerations": [{"key": "a/b/c"}]}),
    Case(
        "toleration",
        "spec.cluster.head.tolerations[0].value",
        {"cluster.head.tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
    ),
    Case("framework", "spec.observability.profiler", {"observability.profiler.steps": [1]}, base=COMMAND),
    Case("framework", "spec.observability.recordSteps", {"observability.recordSteps": [1]}, base=COMMAND),
    Case("framework", "spec.observability.timeline.file", {"observability.timeline.file": "/t.json"}, base=COMMAND),
    Case(
        "preflight-only",
        "spec.preflight.only",
        {"preflight": {"only": True, "level": "none"}},
        "use level basic",
        cel=True,
    ),
    Case("preflight-command", "spec.preflight.command", {"preflight": {"command": ["./smoke.sh"]}}, "remove it"),
    Case(
        "in-place",
        "spec.failurePolicy.restartPolicy",
        {"failurePolicy": {"restartPolicy": "InPlace"}},
        "set storage.claimName, or use Recreate",
    ),
    Case(
        "in-place",
        "spec.failurePolicy.restartPolicy",
        {"failurePolicy": {"restartPolicy": "InPlace"}, "storage": {"claimName": "runs"}},
        "use Recreate",
        base=VERL,
    ),
    Case("command", "spec.preflight.command", {"preflight": {"command": ["./smoke.sh --short"]}}, base=COMMAND),
    Case(
        "pause",
        "spec.observability.metricRules.klRunaway.action",
        {"observability.metricRules.klRunaway.action": "pause"},
        "set storage.claimName, or use warn",
    ),
    Case(
        "pause",
        "spec.observability.metricRules.truncation.action",
        {"observability.metricRules.truncation.action": "pause", "storage.claimName": "runs"},
        "set checkpoint.saveFreq to 1 or more, or use warn",
    ),
    Case(
        "schema",
        "spec.observability.metricRules.truncation.threshold",
        {"observability.metricRules.truncation.threshold": 1.5},
        "use",
        cel=True,
    ),
    Case(
        "schema",
        "spec.observability.metricRules.gradientSpikes.steps",
        {"observability.metricRules.gradientSpikes.steps": 0},
        "use 1",
        cel=True,
    ),
    Case("recorded-steps", "spec.observability.recordSteps[0]", {"observability.recordSteps": [11, 1]}, "use 10"),
    Case("root", "spec.security.runAsUser", {"security.runAsUser": 0}, "1000", cel=True),
    Case("profiled-steps", "spec.observability.profiler.steps[1]", {"observability.profiler.steps": [5, 11]}, "use 10"),
    # structure
    Case("schema", "spec.trainning", {"trainning": {}}, "did you mean training?", cel=True),
    Case(
        "schema",
        "spec.training.train_batch_size",
        {"training.train_batch_size": 8},
        "did you mean trainBatchSize?",
        cel=True,
    ),
    Case(
        "schema",
        "spec.training.kl_coef",
        {"training.kl_coef": 8},
        "did you mean spec.algorithm.klInReward.klCoef?",
        cel=True,
    ),
    Case("schema", "spec.training.totalSteps", {"training.totalSteps": 0}, "use 1", cel=True),
    Case("schema", "spec.training.totalSteps", {"training.totalSteps": 1.5}, "use 1 or 2", cel=True),
    Case(
        "schema",
        "spec.training.totalSteps",
        {"training.totalSteps": 1e30},
        "use an integer with fewer digits",
        cel=True,
    ),
    Case("schema", "spec.algorithm.advEstimator", {"algorithm.advEstimator": "GRPO"}, "did you mean grpo?", cel=True),
    Case("schema", "spec.algorithm.advEstimator", {"algorithm.advEstimator": "ppo"}, "use gae", cel=True),
    Case(
        "schema", "spec.algorithm.advEstimator", {"algorithm.advEstimator": "dr_grpo"}, "normAdvByStdInGrpo", cel=True
    ),
    Case("schema", "spec.activeDeadlineSeconds", {"activeDeadlineSeconds": "24h"}, "use 86400", cel=True),
    Case("schema", "spec.training.totalSteps", {"training.totalSteps": "${STEPS}"}, "variables are not", cel=True),
    Case("schema", "spec.rollout.gpuMemoryUtilization", {"rollout.gpuMemoryUtilization": "50 %"}, "use 0.5", cel=True),
    Case("schema", f"{POD}.memory", workers(resources={"cpu": "2", "memory": "512gb"}), "use 512Gi", cel=True),
    Case("schema", "spec.model.name", {"model.name": "Qwen/Qwen3"}, "did you mean spec.model.path?", cel=True),
    Case("schema", "spec.data.train_files", {"data.train_files": ["/x"]}, "did you mean spec.data.files?", cel=True),
    Case(
        "schema",
        "spec.rewards[0].function.name",
        {"rewards": [{"function": {"name": "compute_score"}}]},
        "a value of this form",
        cel=True,
    ),
    Case("json", "spec.cluster.image", {"cluster.image": "a\0b"}),
    Case("size", "spec", {"framework.command": ["x" * 60000] * 20}, base=COMMAND),
    Case("size", "spec.cluster.head.podTemplate", {"cluster.head": {"podTemplate": LARGE}}, "move files and scripts"),
    Case("size", "spec.rollout.engineKwargs", {"rollout.engineKwargs": LARGE}, "move files and scripts"),
]
