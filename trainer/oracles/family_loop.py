"""The whole loop of a tiny model: load, generate, update, sync, checkpoint, resume, export, reload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import LOOPBACK, train
from ranks import join, run_ranks
from trained_families import FAMILIES, build_config, write_model
from transformers import AutoModelForCausalLM

from rlt_api.blocks.model import Lora
from rlt_api.rules.model_families import ROUTER_BIAS
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.input_validation import validate_engine, validate_lengths
from rlt_trainer.errors import TrainingError
from rlt_trainer.policy.families import find_packing_obstacle, validate_adapters, validate_family

TOLERANCE = 1e-5
"""Maximum difference of log-probabilities in float32."""
PROBES = [Prompt(i, (50 + i, 51, 52, 53, 60 + i), "", "", "", "") for i in range(4)]


def run_loop(name: str, folder: str, engine: str, lora: bool) -> None:
    """Run two steps of GRPO, the second after a resume, and compare the exported model with the last checkpoint.

    engine: of the second step. The first one generates with transformers, because vLLM starts for 10 s and more.

    Raises ValueError or TrainingError if the trainer rejects it, AssertionError for a wrong result.
    """
    torch.set_num_threads(1)
    root = Path(folder)
    architecture = build_config(FAMILIES[name])
    job = build_job(name, root, engine=engine, lora=lora, steps=2)
    validate_family(architecture, packed=False)
    validate_lengths(job, architecture)
    validate_engine(job, architecture)
    write_model(FAMILIES[name], root / "model")
    for total, used in ((1, "transformers"), (2, engine)):
        steps = train(build_job(name, root, engine=used, lora=lora, steps=total))
        assert [step["training/global_step"] for step in steps] == list(range(1, total + 1)), "it resumes"
    for step in steps:
        assert step["training/weight_sync_difference"] <= 1e-4
        assert step["actor/grad_norm"] > 0
    policy = read_checkpoint(build_job(name, root, engine=engine, lora=lora, steps=2))
    difference = max(abs(one - other) for one, other in zip(policy, read_export(root / "run/export"), strict=True))
    assert difference <= TOLERANCE, f"{name}: the exported model differs from the policy by {difference:.1e}"
    start = read_export(root / "model")
    assert max(abs(one - other) for one, other in zip(policy, start, strict=True)) > 100 * TOLERANCE, "it was trained"


def build_job(name: str, root: Path, *, engine: str, lora: bool, steps: int) -> TrainingConfig:
    """Build the config of a run. It packs sequences and changes the biases of routers if the family supports it."""
    packed = find_packing_obstacle(build_config(FAMILIES[name])) is None
    has_bias = FAMILIES[name].model_type in ROUTER_BIAS
    return TrainingConfig.model_validate(
        {
            "job": "tiny",
            "namespace": "default",
            "runDirectory": str(root / "run"),
            "workers": 1,
            "devicesPerWorker": 0,
            "cpusPerWorker": 1,
            "model": {
                "path": str(root / "model"),
                "useRemovePadding": packed,
                **({"lora": build_lora(name, engine)} if lora else {}),
            },
            "data": {"preset": "arithmetic", "maxPromptLength": 16, "maxResponseLength": 5},
            "rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
            "algorithm": {"routerBiasUpdateRate": 0.01} if has_bias and not lora else {},
            "training": {"totalSteps": steps, "trainBatchSize": 4, "ppoMiniBatchSize": 4, "learningRate": 1e-2},
            "rollout": {"engine": engine, "responsesPerPrompt": 4, "kvCacheSpace": 1, "maxNumSeqs": 16},
            "checkpoint": {"saveFreq": 1},
            "observability": {},
        }
    )


def build_lora(name: str, engine: str) -> dict[str, Any]:
    """Build the adapters of a run. vLLM applies them itself."""
    return {"rank": 4, "targetModules": list(FAMILIES[name].lora_targets), "syncAdapters": engine == "vllm"}


def read_checkpoint(config: TrainingConfig) -> list[float]:
    """Return the policy's log-probabilities of the probes, from the last checkpoint."""
    from rlt_trainer.workers.train_worker import TrainWorker

    worker = TrainWorker(config, 0, 1, address=LOOPBACK)
    worker.connect(worker.rendezvous())
    worker.load_models()
    resumed = worker.resume(Path(config.run_directory) / "checkpoints")
    assert resumed is not None
    assert resumed.step == config.training.total_steps
    log_probs = worker.probe_log_probs([probe.token_ids for probe in PROBES])
    worker.close()
    return log_probs


@torch.no_grad()
def read_export(folder: Path) -> list[float]:
    """Return transformers' log-probabilities of the probes, one sequence at a time."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    result: list[float] = []
    for probe in PROBES:
        tokens = torch.tensor([probe.token_ids])
        log_probs = model(input_ids=tokens, use_cache=False).logits[0].float().log_softmax(-1)
        result += log_probs[:-1].gather(-1, tokens[0, 1:, None]).squeeze(-1).tolist()
    return result


def run_context_parallel(name: str, folder: str, rank: int) -> float:
    """Return how far the log-probabilities of two ranks that share each sequence differ from transformers'."""
    import torch.distributed as dist
    from family_check import TEMPERATURE, compute_one_by_one, sample_tokens
    from torch.distributed.device_mesh import init_device_mesh

    from rlt_api.blocks.training import Training
    from rlt_trainer.batches.sequences import Sequences
    from rlt_trainer.policy.log_probs import response_log_probs
    from rlt_trainer.policy.mesh import create_context_group
    from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model

    torch.set_num_threads(1)
    join(rank, 2)
    options = ModelOptions(mesh=init_device_mesh("cpu", (2,)), dtype=torch.float32, packed=True)
    group = create_context_group("cpu", Training(total_steps=1, context_parallel_size=2), 2)
    model = load_sharded_model("actor", folder, options, response_log_probs)
    prompts, responses = sample_tokens()
    sequences = Sequences.pad(prompts, responses, pad_token_id=0)
    with torch.no_grad():
        rows, _ = model(sequences, temperature=TEMPERATURE, packed=True, group=group)
    dist.destroy_process_group()
    expected = compute_one_by_one("actor", Path(folder), {})
    return max(float((row[: len(one)] - one).abs().max()) for row, one in zip(rows, expected, strict=True))


def measure_loop(name: str, folder: Path, *, engine: str) -> str:
    """Run the loop in its own process. Return yes, or no with the reason."""
    return run_ranks(_answer, [(run_loop, (name, str(folder), engine, False))])[0]


def measure_lora(name: str, folder: Path) -> str:
    """Run the loop with adapters on all linear layers, or on those that the family supports."""
    family = FAMILIES[name]
    found = run_ranks(_answer, [(run_loop, (name, str(folder), "transformers", True))])[0]
    if found == "yes" and family.lora_targets != ("all-linear",):
        with pytest.raises(ValueError, match=r"model\.lora\.targetModules: all-linear contains experts or routers"):
            validate_adapters(build_config(family), Lora(rank=4))
        return f"yes: With targetModules {', '.join(family.lora_targets)}. all-linear contains experts or routers."
    return found


def measure_synced_adapters(name: str, folder: Path) -> str:
    """Run the loop with the same adapters, which vLLM applies itself in the second step."""
    return run_ranks(_answer, [(run_loop, (name, str(folder), "vllm", True))])[0]


def measure_packing(name: str, folder: Path) -> str:
    """Return yes if the loop of this family packs its sequences, or no with the reason."""
    try:
        validate_family(build_config(FAMILIES[name]), packed=True)
    except ValueError as error:
        return describe(error)
    return "yes"


def measure_context_parallel(name: str, folder: Path) -> str:
    """Compare two ranks with transformers. Return yes, or no with the reason."""
    config = build_config(FAMILIES[name])
    try:
        validate_family(config, packed=True)
    except ValueError as error:
        return describe(error)
    write_model(FAMILIES[name], folder)
    differences = run_ranks(run_context_parallel, [(name, str(folder), rank) for rank in range(2)])
    assert max(differences) <= TOLERANCE, f"{name}: two ranks differ from transformers by {max(differences):.1e}"
    return "yes"


def _answer(program: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    try:
        program(*arguments)
    except (ValueError, TrainingError) as error:
        return describe(error)
    return "yes"


def describe(error: Exception) -> str:
    """Return the reason of a rejection, in a cell of the table."""
    return f"no: {str(error).partition(chr(10))[0]}"
