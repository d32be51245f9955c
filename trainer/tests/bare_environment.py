"""Import all modules of the trainer, and train, as if Ray, vLLM and the packages of the extras were not installed.

Argument: a folder for the runs. Prints what the tests assert in JSON.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from contextlib import redirect_stdout
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from rlt_api.spec.training_config import TrainingConfig

MISSING = (
    "ray",
    "vllm",
    "debugpy",
    "liger_kernel",
    "mcp",
    "obstore",
    "opentelemetry",
    "tensorboard",
    "torchao",
    "wandb",
)


class BareFinder(PathFinder):
    """Finds what Python finds, except the missing packages."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] in MISSING:
            return None
        return super().find_spec(fullname, path, target)


def import_all(package: str) -> dict[str, str]:
    """Import all modules of a package. Return the package that each module without success misses."""
    misses: dict[str, str] = {}
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            misses[module.name] = str(error.name)
    return misses


def explain(config: dict[str, Any]) -> str:
    """Return the error of a run as the command prints it."""
    from rlt_trainer.driver.run import run

    with redirect_stdout(sys.stderr):  # the progress
        try:
            run(TrainingConfig.model_validate(config), local=True)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def main(folder: Path) -> None:
    """Import, train three steps with the transformers engine, select each extra, and print the results."""
    misses = import_all("rlt_trainer")

    from in_process import train

    from rlt_trainer.telemetry.traces import open_traces

    config: dict[str, Any] = {
        "job": "tiny",
        "namespace": "default",
        "runDirectory": str(folder / "run"),
        "workers": 1,
        "devicesPerWorker": 0,
        "cpusPerWorker": 1,
        "model": {"fromSeed": {"seed": 1, "hiddenSize": 32, "numHiddenLayers": 1, "numAttentionHeads": 2}},
        "data": {"preset": "arithmetic", "maxPromptLength": 16, "maxResponseLength": 5},
        "rewards": [{"name": "exact"}],
        "algorithm": {},
        "training": {"totalSteps": 3, "trainBatchSize": 8, "ppoMiniBatchSize": 4},
        "rollout": {"engine": "transformers", "responsesPerPrompt": 4},
        "checkpoint": {},
        "observability": {},
    }
    lines = train(TrainingConfig.model_validate(config))
    mcp = {"tools": [{"mcp": {"url": "http://127.0.0.1/mcp"}}]}
    selecting: dict[str, dict[str, Any]] = {
        "torchao": {"training": {**config["training"], "optimizer": "adamw_8bit"}},
        "mcp": {"rollout": {**config["rollout"], "multiTurn": mcp}},
        "wandb": {"observability": {"wandb": {"apiKey": {"name": "wandb", "key": "key"}}}},
        "tensorboard": {"observability": {"tensorboard": {}}},
        "debugpy": {"observability": {"debugger": "ray"}},
        "obstore": {"bucket": {"url": "s3://runs/runs/tiny"}},
        "ray": {},
    }
    result = {
        "misses": misses,
        "steps": [line["training/global_step"] for line in lines],
        "imported": sorted({name.partition(".")[0] for name in sys.modules} & set(MISSING)),
        "errors": {
            name: explain({**config, "runDirectory": str(folder / name), **blocks})
            for name, blocks in selecting.items()
        },
        "traces": open_traces(job="tiny", namespace="default", environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    sys.meta_path[sys.meta_path.index(PathFinder)] = BareFinder
    main(Path(sys.argv[1]))
