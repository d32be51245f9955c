"""No field is ignored: what a job may say, and is not refused with "not supported yet", somebody reads.

The trainer reads what is its own, the operator everything else (/dev/shm by the rule that sizes it). A field of one
possible value decides nothing. What is "for the memory arithmetic" is read by the rules, and a node pool where job and
runtime become one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from readers import field_of, read_fields

from rlt_api.runtime import BUILTIN_ONLY
from rlt_api.schema import Schema, leaves, not_yet
from rlt_api.spec import RLTrainingJobSpec

ROOT = Path(__file__).parents[2]
TRAINER = read_fields(ROOT / "trainer/rlt_trainer")
OPERATOR = read_fields(
    ROOT / "operator/rlt_operator", ROOT / "core/rlt_core", ROOT / "crds/rlt_api/rules/shared_memory.py"
)
ARITHMETIC = read_fields(ROOT / "crds/rlt_api/rules")
AS_JSON = ("crds/rlt_api/runtime.py", "core/rlt_core/job.py")
MARKS = not_yet(RLTrainingJobSpec)
BY_RULES = ("spec.rollout.workerGroup", "spec.training.reference.fsdpSize")
"""The first is read by rules/layout.py for all; the second must be training.fsdp.fsdpSize, and so decides nothing."""


def supported() -> list[tuple[str, Schema]]:
    """Leaves that are not refused, and have more than one value that is not."""
    found = []
    for path, schema in leaves(RLTrainingJobSpec):
        whole = any(f"{path}.".startswith((f"{mark}.", f"{mark}[]")) for mark, values in MARKS.items() if not values)
        values = set(schema.get("enum", [schema["const"]] if "const" in schema else ["any", "number"]))
        if not whole and len(values - set(MARKS.get(path, ()))) > 1:
            found.append((path, schema))
    return found


def is_read_by_name(path: str) -> bool:
    """Whether it is read where manifests are JSON still; only a name that no other field has can show it."""
    name = path.rpartition(".")[2]
    alone = [leaf for leaf, _ in leaves(RLTrainingJobSpec) if leaf.endswith(f".{name}")] == [path]
    return alone and any(f'"{name}"' in (ROOT / source).read_text() for source in AS_JSON)


@pytest.mark.parametrize(("path", "schema"), supported(), ids=lambda value: value if isinstance(value, str) else "")
def test_it_is_read(path: str, schema: Schema) -> None:
    block = path.split(".")[1].removesuffix("[]")
    field = field_of(RLTrainingJobSpec, path)
    if "memory arithmetic" in schema["description"] or path in BY_RULES:
        assert field in ARITHMETIC
    elif block in BUILTIN_ONLY:
        assert field in TRAINER
    elif block == "observability":  # partly of all jobs, partly of the trainer
        assert field in OPERATOR | TRAINER
    else:
        assert field in OPERATOR or is_read_by_name(path)


def test_a_field_that_nobody_reads_is_found(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from rlt_api.blocks.training import Training\n"
        "def run(training: Training) -> int:\n"
        "    warmup = training.warmup\n"
        "    return training.ppo_epochs + (warmup.steps if warmup else 0)\n"
    )
    found = {name for _, name in read_fields(tmp_path)}
    assert found == {"warmup", "ppo_epochs", "steps"}
