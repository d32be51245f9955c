"""Every field of a job is read by the trainer, the operator or a rule.

The trainer reads the blocks in TRAINING_BLOCKS, the operator everything else (/dev/shm and the token by the rules that
decide on them) and references to Secrets and ConfigMaps. A field with one possible value has no effect. Rules read what
is "for the memory estimate"; `resolve` reads a node pool.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from readers import field_of, read_fields

from rlt_api.blocks.data import HubDataset
from rlt_api.blocks.evaluation import HubTestSet
from rlt_api.blocks.operations import Observability
from rlt_api.schema.model_schema import Schema, walk_leaves
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import TRAINING_BLOCKS

ROOT = Path(__file__).parents[2]
TRAINER = read_fields(ROOT / "trainer/rlt_trainer", ROOT / "api/rlt_api/spec/engine_options.py")
OPERATOR = read_fields(
    ROOT / "operator/rlt_operator",
    ROOT / "core/rlt_core",
    ROOT / "api/rlt_api/rules/security.py",
    ROOT / "api/rlt_api/rules/shared_memory.py",
)
FRAMEWORKS = read_fields(ROOT / "api/rlt_api/frameworks")
MEMORY_RULES = read_fields(ROOT / "api/rlt_api/rules", ROOT / "api/rlt_api/frameworks")
REFERENCES = ("apiKey", "secretKeyRef", "configMapKeyRef")
AS_JSON = ("api/rlt_api/spec/runtime.py", "core/rlt_core/job.py")
BY_RULES = ("spec.rollout.workerGroup", "spec.training.reference.fsdpSize")
"""rules/layout.py reads the first one; the second one must equal training.fsdp.fsdpSize and has no other effect."""
REPLACED = "spec.checkpoint.resumeFromJob"
"""The operator replaces it by resumeFromPath, which the trainer reads."""
SANDBOX = "spec.rollout.multiTurn.sandbox."
"""The operator builds the pods, and the trainer claims them."""
METRIC_RULES = "spec.observability.metricRules."
"""blocks/metric_rules.py reads these by name: test_metric_rules.py changes each."""


def fields_with_an_effect() -> list[tuple[str, Schema]]:
    """Return the leaves that have more than one possible value."""
    return [(path, schema) for path, schema in walk_leaves(RLTrainingJobSpec) if "const" not in schema]


def is_read_by_name(path: str) -> bool:
    """Return whether code on JSON manifests reads the field. Only a unique name can show this."""
    name = path.rpartition(".")[2]
    is_unique = [leaf for leaf, _ in walk_leaves(RLTrainingJobSpec) if leaf.endswith(f".{name}")] == [path]
    return is_unique and any(f'"{name}"' in (ROOT / source).read_text() for source in AS_JSON)


@pytest.mark.parametrize(
    ("path", "schema"), fields_with_an_effect(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_field_is_read(path: str, schema: Schema) -> None:
    block = path.split(".")[1].removesuffix("[]")
    field = field_of(RLTrainingJobSpec, path)
    if "memory estimate" in schema["description"] or path in BY_RULES:
        assert field in MEMORY_RULES
    elif path.startswith(METRIC_RULES):
        assert (Observability, "metric_rules") in OPERATOR & TRAINER
    elif path.startswith(SANDBOX):
        assert field in OPERATOR | TRAINER
    elif block in (*TRAINING_BLOCKS, "evaluateOnly"):
        assert field in (OPERATOR if path == REPLACED or path.rpartition(".")[0].endswith(REFERENCES) else TRAINER)
    elif block in ("observability", "publish"):  # the operator reads some fields, the trainer the others
        assert field in OPERATOR | TRAINER
    else:
        assert field in OPERATOR | FRAMEWORKS or is_read_by_name(path)


def test_unread_field_is_detected(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from rlt_api.blocks.training import Training\n"
        "def run(training: Training) -> int:\n"
        "    warmup = training.warmup\n"
        "    return training.ppo_epochs + (warmup.steps if warmup else 0)\n"
    )
    found = {name for _, name in read_fields(tmp_path)}
    assert found == {"warmup", "ppo_epochs", "steps"}


def test_read_of_a_base_class_reads_the_subclass(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from rlt_api.blocks.data import HubDataset\ndef run(hub: HubDataset) -> str:\n    return hub.name\n"
    )
    assert read_fields(tmp_path) == {(HubDataset, "name"), (HubTestSet, "name")}
