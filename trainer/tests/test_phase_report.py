"""The phases that a real training reports add up to its wall time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

import in_process
import pytest

from rlt_api.spec.training_config import ProgressReport, TrainingConfig
from rlt_pod.report.phase_seconds import Devices
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.telemetry.server import ProgressServer

pytestmark = pytest.mark.slow


def test_the_phases_add_up_to_the_time_of_the_training(
    make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[ProgressReport] = []
    publish = ProgressServer.publish

    def record(server: ProgressServer, report: ProgressReport, metrics: Mapping[str, float]) -> None:
        reports.append(report)
        publish(server, report, metrics)

    monkeypatch.setattr(ProgressServer, "publish", record)
    monkeypatch.setattr(in_process, "Reporter", partial(Reporter, devices=Devices(train=1)))
    steps = in_process.train(make_config(workers=1, training={"totalSteps": 3}, checkpoint={"saveFreq": 2}))
    began, ended = (
        datetime.fromisoformat(next(each.updated for each in reports if each.stage == stage)).timestamp()
        for stage in ("training", "finished")
    )
    phases = reports[-1].phases
    assert phases
    parts = phases.model_dump(exclude={"uncommitted"})
    assert sum(parts.values()) == pytest.approx(ended - began, rel=0.1)
    assert parts["generate"] == pytest.approx(sum(step["timing_s/gen"] for step in steps))
    assert parts["sync"] == pytest.approx(sum(step["timing_s/update_weights"] for step in steps))
    assert min(parts["update"], parts["idle"]) > 0
    saved = next(each.phases for each in reports if each.step == 3 and each.phases)
    assert saved.uncommitted < sum(saved.model_dump(exclude={"uncommitted"}).values()), "step 2 has a checkpoint"
