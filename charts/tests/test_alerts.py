"""Prometheus' own evaluator runs the alerts: each fires on series of its failure, and none on healthy jobs' series."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitoring.alerts import ALERTS
from monitoring.declarations import list_served_names
from monitoring.promql import list_metrics
from rlt_e2e.prometheus import promtool

ROOT = Path(__file__).parents[2]
RULES = ROOT / "charts/rlt-operator/alerts/rules.yaml"

DRIVER = '{namespace="demo", job="sum", pod="sum-head"}'
OF_JOB = '{namespace="demo", name="sum", pod="operator-1"}'
OPERATOR = '{namespace="rlt-system", pod="operator-1"}'
GPU = 'DCGM_FI_DEV_GPU_UTIL{namespace="gpu-operator", pod="dcgm", exported_namespace="demo", exported_pod="sum-worker"}'
RAY_GPU = 'ray_node_gpus_utilization{namespace="demo", job="sum", pod="sum-worker", GpuIndex="0"}'
HOURS = 8

Series = dict[str, str]
"""Series -> its values each minute, in the notation of promtool."""


def steps(metric: str, values: str) -> Series:
    return {f"{metric}{DRIVER}": values}


def parts(**values: str) -> Series:
    names = (
        f'rlt_job_accelerator_seconds{{namespace="demo", name="sum", role="colocated", phase="{phase}"}}'
        for phase in values
    )
    return dict(zip(names, values.values(), strict=True))


def sandboxes(**values: str) -> Series:
    names = (f'rlt_job_sandboxes{{namespace="demo", name="sum", state="{state}"}}' for state in values)
    return dict(zip(names, values.values(), strict=True))


HEALTHY: Series = {
    'rlt_job_phase{namespace="demo", name="sum", phase="Running"}': "1+0x480",
    f"rlt_job_restarts{OF_JOB}": "0+0x120 1+0x360",
    **parts(generate="0+300x480", idle="0+180x480"),
    'rlt_job_pod_info{namespace="demo", name="sum", pod="sum-worker"}': "1+0x480",
    'rlt_job_pod_info{namespace="demo", name="sum", pod="sum-head"}': "1+0x480",
    GPU: "0 90 " * 240,
    RAY_GPU: "0 90 " * 240,
    'rlt_trainer_stage{namespace="demo", job="sum", stage="training"}': "1+0x480",
    **steps("rlt_trainer_last_step_timestamp_seconds", "0+60x480"),
    **steps("rlt_trainer_latest_checkpoint_timestamp_seconds", "0+60x480"),
    **steps("rlt_trainer_step_duration_seconds", "60+0x480"),
    **steps("rlt_trainer_reward_failures", "1+0x480"),
    **steps("rlt_trainer_responses", "512+0x480"),
    **steps("rlt_trainer_policy_loss", "0.1+0x480"),
    **steps("rlt_trainer_grad_norm", "1+0x480"),
    **steps("rlt_trainer_reward_mean", "0+0.001x480"),
    **steps("rlt_trainer_skipped_updates", "0+0x480"),
    **steps("rlt_trainer_kl", "0+0.001x480"),
    **steps("rlt_trainer_entropy", "2-0.003x480"),
    **sandboxes(ready="0 3 " * 240, claimed="60+0x480", missing="4 1 " * 240),
    **steps("rlt_trainer_sandbox_claims", "512+0x480"),
    **steps("rlt_trainer_sandbox_failures", "1+0x480"),
    **steps("rlt_trainer_sandbox_claim_seconds_p99", "0.3 0.2 " * 230 + "60+0x9 0.3+0x9"),
    f"rlt_operator_leader{OPERATOR}": "1+0x480",
    f"rlt_operator_shards{OPERATOR}": "1+0x480",
    f"rlt_operator_queue_oldest_seconds{OPERATOR}": "0.2+0x480",
    f"rlt_operator_unreported_failures_total{OPERATOR}": "2+0x480",
    f"rlt_operator_webhook_certificate_expiry_timestamp_seconds{OPERATOR}": "7776000+0x480",
}
"""Eight hours of a healthy job: a restart after two hours, a falling entropy, a growing KL divergence, a full pool of
sandboxes, a step with slow claims."""
JOB = {"namespace": "demo", "job": "sum"}
POD = {"namespace": "rlt-system", "pod": "operator-1"}


@dataclass(frozen=True)
class Failure:
    """What differs from HEALTHY, and the labels of the alert that then fires."""

    alert: str
    series: Series
    labels: dict[str, str]


FAILURES = (
    Failure("RLTJobNoHeartbeat", steps("rlt_trainer_last_step_timestamp_seconds", "0+60x400 stale"), JOB),
    Failure("RLTJobStalled", steps("rlt_trainer_last_step_timestamp_seconds", "0+60x440 26400+0x40"), JOB),
    Failure("RLTJobFailingRetries", {f"rlt_job_restarts{OF_JOB}": "0+0x450 1 2 3+0x30"}, JOB),
    Failure(
        "RLTCheckpointTooOld", steps("rlt_trainer_latest_checkpoint_timestamp_seconds", "0+60x120 7200+0x360"), JOB
    ),
    Failure(
        "RLTGpuIdle",
        {GPU: "90+0x440 0+0x40"},
        {**JOB, "pod": "sum-worker"},
    ),
    Failure(
        "RLTGpuIdle",
        {RAY_GPU: "90+0x440 0+0x40"},
        {**JOB, "pod": "sum-worker"},
    ),
    Failure("RLTIdleAccelerators", parts(generate="0+300x330 99000+0x150", idle="0+180x330 59400+480x150"), JOB),
    Failure(
        "RLTSandboxPoolExhausted",
        sandboxes(ready="3+0x450 0+0x30", claimed="60+0x450 2+0x30", missing="1+0x450 62+0x30"),
        JOB,
    ),
    Failure("RLTSandboxClaimsSlow", steps("rlt_trainer_sandbox_claim_seconds_p99", "0.3+0x440 12+0x40"), JOB),
    Failure("RLTSandboxFailures", steps("rlt_trainer_sandbox_failures", "1+0x440 40+0x40"), JOB),
    Failure("RLTRewardErrors", steps("rlt_trainer_reward_failures", "0+0x440 100+0x40"), JOB),
    Failure("RLTMetricNotFinite", steps("rlt_trainer_policy_loss", "0.1+0x470" + 10 * " NaN"), JOB),
    Failure("RLTMetricNotFinite", steps("rlt_trainer_grad_norm", "1+0x470" + 10 * " Inf"), JOB),
    Failure("RLTMetricNotFinite", steps("rlt_trainer_skipped_updates", "0+0x470 2+0x10"), JOB),
    Failure("RLTKlRunaway", steps("rlt_trainer_kl", "0.01+0x440 0.1+0.1x40"), JOB),
    Failure("RLTKlRunaway", steps("rlt_trainer_reward_kl", "0.01+0x440 0.1+0.1x40"), JOB),
    Failure("RLTEntropyCollapse", steps("rlt_trainer_entropy", "2+0x430 0.3-0.005x50"), JOB),
    Failure("RLTOperatorNotReconciling", {f"rlt_operator_queue_oldest_seconds{OPERATOR}": "0+0x460 0+60x20"}, POD),
    Failure("RLTOperatorNotReconciling", {f"rlt_operator_unreported_failures_total{OPERATOR}": "0+0x460 0+1x20"}, POD),
    Failure("RLTOperatorNoLeader", {f"rlt_operator_leader{OPERATOR}": "1+0x470 0+0x10"}, {}),
    Failure("RLTOperatorNoLeader", {f"rlt_operator_leader{OPERATOR}": "1+0x400 stale"}, {}),
    Failure("RLTOperatorNoLeader", {f"rlt_operator_shards{OPERATOR}": "2+0x480"}, {}),
    Failure(
        "RLTWebhookCertificateEnding",
        {f"rlt_operator_webhook_certificate_expiry_timestamp_seconds{OPERATOR}": "90000+0x480"},
        POD,
    ),
)


def build_test(series: Series, firing: list[dict[str, str]], name: str) -> dict[str, Any]:
    """Build a test of promtool: exactly these alerts fire after HOURS."""
    samples = [{"labels": format_labels("ALERTS", {**labels, "alertstate": "firing"}), "value": 1} for labels in firing]
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{HOURS}h", "exp_samples": samples},
        ],
    }


def build_annotation_test() -> dict[str, Any]:
    """Build a test of an alert's text."""
    stalled = next(alert for alert in ALERTS if alert.name == "RLTJobStalled")
    annotations = {
        "summary": "demo/sum: no step for 40m 0s",
        "description": stalled.meaning,
        "runbook_url": "docs/runbooks.md#rltjobstalled",
    }
    expected = {"exp_labels": {"severity": "critical", **JOB}, "exp_annotations": annotations}
    series = {**HEALTHY, **steps("rlt_trainer_last_step_timestamp_seconds", "0+60x440 26400+0x40")}
    test = build_test(series, [], "annotations")
    del test["promql_expr_test"]
    return {**test, "alert_rule_test": [{"alertname": stalled.name, "eval_time": "8h", "exp_alerts": [expected]}]}


def format_labels(metric: str, labels: dict[str, str]) -> str:
    pairs = [f'{label}="{value}"' for label, value in labels.items()]
    return f"{metric}{{{', '.join(pairs)}}}"


@pytest.mark.apiserver
def test_each_alert_fires_on_its_failure_and_none_on_a_healthy_job(tmp_path: Path) -> None:
    severities = {alert.name: alert.severity for alert in ALERTS}
    assert {failure.alert for failure in FAILURES} == set(severities)
    tests = [build_test(HEALTHY, [], "healthy")]
    for failure in FAILURES:
        labels = {"alertname": failure.alert, "severity": severities[failure.alert], **failure.labels}
        tests.append(build_test({**HEALTHY, **failure.series}, [labels], failure.alert))
    tests.append(build_annotation_test())
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "5m", "tests": tests}))
    promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(file))


def test_each_alert_links_to_its_runbook() -> None:
    page = (ROOT / "docs/runbooks.md").read_text()
    anchors = {heading.lower() for heading in re.findall(r"^## (\w+)$", page, re.MULTILINE)}
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert {rule["annotations"]["runbook_url"] for rule in rules} == {f"docs/runbooks.md#{name}" for name in anchors}
    assert len(rules) == len(ALERTS)


def test_every_queried_metric_is_exported() -> None:
    served = list_served_names()
    for alert in ALERTS:
        queried = list_metrics(alert.expression)
        assert queried, alert.name
        assert queried <= served, f"{alert.name}: {queried - served}"
