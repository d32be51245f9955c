"""What the status remembers."""

from __future__ import annotations

import observed as o
import pytest

from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_operator.memory.parts import PARTS
from rlt_operator.reconcile.plan import plan
from rlt_operator.reconcile.status import build_status
from rlt_operator.verdict import Verdict


@pytest.mark.parametrize("field", PARTS)
def test_each_part_is_a_field_of_the_status(field: str) -> None:
    assert field in RLTrainingJobStatus.model_fields


def test_a_verdict_that_decides_nothing_keeps_all_but_the_clocks() -> None:
    old = o.STARTED.job.status
    kept = build_status(o.STARTED, Verdict("Nothing new."), o.NOW)
    changed = {field for field in PARTS if getattr(kept, field) != getattr(old, field)}
    assert changed == {"pending_since", "active_since", "active_seconds"}
    assert plan(o.STARTED, o.NOW).status is None
