"""The command lines of `rlt serve`: vLLM's own parser reads them, and a server with one has the trainer's values."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import OneWorker, build_pair_config
from job_specs import BUILTIN, gpus, merged
from model_server import complete, serve

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.children.model_server import ServedModel, build_server_command
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.workers.train_worker import TrainWorker

pytestmark = pytest.mark.slow

BASE = {"path": "Qwen/Qwen2.5-1.5B-Instruct", "fromSeed": None, "dtype": "bfloat16"}
LORA = {"rank": 4, "alpha": 12, "useRslora": True}
LENGTHS = {"preset": "arithmetic", "maxPromptLength": 24, "maxResponseLength": 8}
PROMPT = [50, 51, 52]


def parse(model: ServedModel, changes: dict[str, Any]) -> Namespace:
    """Parse the arguments after `vllm serve`."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    spec = RLTrainingJobSpec.model_validate(merged(BUILTIN, {**gpus(8), "model": BASE, **changes}))
    program, serve, *arguments = build_server_command("math", spec, model)
    assert (program, serve) == ("vllm", "serve")
    create_parser: Any = FlexibleArgumentParser  # vLLM does not annotate it
    found: Namespace = make_arg_parser(create_parser()).parse_args(arguments)
    validate_parsed_serve_args(found)
    return found


def test_the_arguments_of_a_model() -> None:
    model = ServedModel("lab/math", "c0ffee")
    found = parse(model, {"rollout.tensorParallelSize": 4, "model.trustRemoteCode": True})
    assert (found.model_tag, found.revision, found.served_model_name) == ("lab/math", "c0ffee", ["math"])
    assert (found.tensor_parallel_size, found.dtype, found.max_model_len) == (4, "bfloat16", 1024)
    assert found.trust_remote_code is True
    assert found.port == 8000


@pytest.mark.parametrize(("rank", "maximum"), [(1, 1), (12, 16), (256, 256), (300, 320)])
def test_the_arguments_of_an_adapter(rank: int, maximum: int) -> None:
    model = ServedModel("Qwen/Qwen2.5-1.5B-Instruct", adapter="/mnt/rlt/runs/a/export/adapter")
    found = parse(model, {"model": {**BASE, "lora": {"rank": rank}}})
    (module,) = found.lora_modules
    assert (module.name, module.path) == ("math", "/mnt/rlt/runs/a/export/adapter")
    assert (found.enable_lora, found.max_lora_rank, found.served_model_name) == (True, maximum, ["math-base"])


@pytest.fixture(scope="module")
def trained(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainWorker]:
    """A train worker whose adapters have been trained."""
    config = build_pair_config(
        tmp_path_factory.mktemp("run"),
        model={"path": tiny_model, "lora": LORA},
        data=LENGTHS,
        algorithm={"klLossCoef": 0.001},  # the worker has a reference
        rollout={},
        training={"totalSteps": 1, "ppoMiniBatchSize": 128, "learningRate": 1e-2},
    )
    worker = OneWorker(config).worker
    worker.connect(worker.rendezvous())
    worker.load_models()
    for _ in range(3):
        worker.supervised_step(Sequences.pad([PROMPT] * 4, [[60, 61, 62]] * 4, pad_token_id=0), 12)
    yield worker
    worker.close()


@pytest.mark.parametrize("adapter", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_server_has_the_log_probabilities_of_the_trainer(
    trained: TrainWorker, tiny_model: str, tmp_path: Path, adapter: bool
) -> None:
    """Of the export with merged adapters, or of the base model with the adapters of the export, and without them."""
    export = tmp_path / "export"
    trained.export(export)
    model = ServedModel(tiny_model, adapter=str(export / "adapter")) if adapter else ServedModel(str(export))
    changes = {"model": {"path": tiny_model, "fromSeed": None, "lora": LORA}, "data": LENGTHS}
    methods = {"tiny": trained.log_probs, **({"tiny-base": trained.ref_log_probs} if adapter else {})}
    with serve("tiny", model, tmp_path, changes) as url:
        answers = {name: complete(url, name, PROMPT, 5) for name in methods}
    for name, (tokens, log_probs) in answers.items():
        expected = methods[name](Sequences.pad([PROMPT], [tokens], pad_token_id=0))[0]
        assert log_probs == pytest.approx(expected.tolist(), abs=1e-4)
    assert len({tuple(tokens) for tokens, _ in answers.values()}) == len(methods), "the adapters have no effect"
