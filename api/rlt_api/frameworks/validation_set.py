"""The first suite of spec.evaluation as the validation set of a framework that has one."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.evaluation import Evaluation
from rlt_api.rules.unsupported import REMOVE, Unsupported
from rlt_api.spec.job_spec import RLTrainingJobSpec


def find_suite(spec: RLTrainingJobSpec) -> Evaluation | None:
    """Return the suite. None: the job has no evaluation."""
    return spec.evaluation[0] if spec.evaluation else None


def list_files(spec: RLTrainingJobSpec) -> list[str]:
    """Return the files of the suite."""
    suite = find_suite(spec)
    return [*(suite.data.files or [])] if suite and suite.data else []


def list_evaluation(spec: RLTrainingJobSpec, reason: str, *, reads_hub: bool = False) -> Iterator[Unsupported]:
    """Yield the fields of spec.evaluation that such a framework cannot take. `reason`: which sources it reads.

    Such a framework reads the columns that spec.data names.
    """
    for index, suite in enumerate(spec.evaluation):
        field = f"spec.evaluation[{index}]"
        fix = "add its files to the first suite, or remove it"
        yield field, index > 0, "it has one validation set", fix
        yield f"{field}.promoteIf", suite.promote_if is not None, "rlt's trainer alone has gates", REMOVE
        data = suite.data
        if data is None:
            continue
        yield f"{field}.data.preset", data.preset is not None, reason, "write them, and use data.files"
        yield f"{field}.data.hub", data.hub is not None and not reads_hub, reason, "write them, and use data.files"
        for name, given in {"promptKey": data.prompt_key, "answerKey": data.answer_key}.items():
            yield f"{field}.data.{name}", given is not None, "it has the columns of spec.data", REMOVE
        yield f"{field}.data.filters", bool(data.filters), "it reads all rows", REMOVE
