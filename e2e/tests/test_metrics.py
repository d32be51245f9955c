"""Prometheus scrapes operator and trainer at their annotated addresses, and PromQL returns their values.

- each scrape of the trainer equals metrics.jsonl for that step;
- the operator's series equal the status of the job;
- every panel of the chart's dashboards has data, and promtool accepts the exposition.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from monitoring.dashboards import DASHBOARDS
from monitoring.grafana import Dashboard
from monitoring.run_dashboard import RUN
from rlt_core.names import CANCEL_ANNOTATION
from rlt_e2e.cluster import Cluster
from rlt_e2e.installation import CLAIM, RELEASE, SYSTEM_NAMESPACE, create_namespace
from rlt_e2e.jobs import (
    EVENT_TIMEOUT_S,
    Job,
    apply_job,
    await_condition,
    await_job,
    get_step,
    load_example,
    read_metrics,
)
from rlt_e2e.prometheus import Prometheus, prometheus, promtool
from rlt_pod.report.driver_report import METRICS_PORT

pytestmark = pytest.mark.cluster

NAMESPACE = "t-metrics"
NAME = "scraped"
STEPS = 12
COMPARED = {
    "rlt_trainer_reward_mean": "critic/rewards/mean",
    "rlt_trainer_kl": "actor/kl_loss",
    "rlt_trainer_entropy": "actor/entropy",
    "rlt_trainer_grad_norm": "actor/grad_norm",
    "rlt_trainer_response_length_mean": "response_length/mean",
    "rlt_trainer_step_duration_seconds": "timing_s/step",
    "rlt_trainer_step_tokens": "perf/total_num_tokens",
}
"""Name in Prometheus -> verl's name in metrics.jsonl."""
ANNOTATION = "prometheus.io"


@dataclass(frozen=True)
class Scraped:
    """A finished job, and the Prometheus that scraped it."""

    server: Prometheus
    job: Job
    metrics: list[dict[str, Any]]
    exposition: str
    """Text of the trainer's /metrics during the run."""

    @property
    def in_training(self) -> float:
        """Unix time of the last scrape before the last step, while the job was running."""
        (steps,) = self.server.query(f'rlt_trainer_step{{job="{NAME}", namespace="{NAMESPACE}"}}[1h]')
        return max(moment for moment, step in steps.samples if 2 <= step < STEPS)


def scrape_config(targets: Path) -> dict[str, Any]:
    """Build a configuration that scrapes the targets of the file once per second and keeps their labels."""
    pods = {"job_name": "pods", "honor_labels": True, "file_sd_configs": [{"files": [str(targets)]}]}
    return {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [pods]}


def find_targets(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """Return the annotated pods of the namespace: Debian's Prometheus has no Kubernetes service discovery."""
    targets = []
    for pod in json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]:
        annotations = pod["metadata"].get("annotations", {})
        if annotations.get(f"{ANNOTATION}/scrape") == "true" and pod["status"].get("podIP"):
            labels = {"namespace": namespace, "pod": pod["metadata"]["name"]}
            labels["__metrics_path__"] = annotations[f"{ANNOTATION}/path"]
            address = f"{pod['status']['podIP']}:{annotations[f'{ANNOTATION}/port']}"
            targets.append({"targets": [address], "labels": labels})
    return targets


@pytest.fixture(scope="module")
def scraped(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """A short job that Prometheus scrapes until it ends."""
    if not cluster.layout:
        pytest.skip("needs the embedded cluster, whose pods this machine can reach")
    delete_namespace(cluster)
    create_namespace(cluster, NAMESPACE)
    folder = tmp_path_factory.mktemp("prometheus")
    targets = folder / "targets.json"
    end_job(cluster)
    apply_job(cluster, NAMESPACE, build_job())
    await_job(
        cluster,
        NAMESPACE,
        NAME,
        lambda _: bool(find_targets(cluster, NAMESPACE)),
        what="a head pod",
        timeout_s=EVENT_TIMEOUT_S,
    )
    targets.write_text(json.dumps([*find_targets(cluster, NAMESPACE), *find_targets(cluster, SYSTEM_NAMESPACE)]))
    with prometheus(scrape_config(targets), folder) as server:
        running = await_job(cluster, NAMESPACE, NAME, lambda job: get_step(job) >= 2, what="step 2", timeout_s=600)
        exposition = read_exposition(
            cluster, f"{running['status']['rayCluster']['name']}-head-svc", NAMESPACE, METRICS_PORT
        )
        job = await_condition(cluster, NAMESPACE, NAME, "Succeeded", timeout_s=600)
        yield Scraped(server, job, read_metrics(cluster, NAMESPACE, job), exposition)
    delete_namespace(cluster)


def end_job(cluster: Cluster) -> None:
    """Cancel a suspended job, because an operator counts only the jobs that end while it is the leader."""
    job = build_job()
    job["metadata"] = {"name": "cancelled", "annotations": {CANCEL_ANNOTATION: "true"}}
    job["spec"]["suspend"] = True
    apply_job(cluster, NAMESPACE, job)
    await_condition(cluster, NAMESPACE, "cancelled", "Failed", timeout_s=EVENT_TIMEOUT_S)


def delete_namespace(cluster: Cluster) -> None:
    """Delete the namespace and its volume, which would stay bound to a deleted PVC."""
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait", "--timeout=300s")
    cluster.kubectl("delete", "persistentvolume", f"{NAMESPACE}-{CLAIM}", "--ignore-not-found")


def build_job() -> Job:
    """Build example 01 with fewer steps, the engine transformers, and steps long enough for a scrape of each.

    One worker starts sooner than two.
    """
    job = load_example("01-arithmetic-grpo.yaml")
    spec = job["spec"]
    spec["training"] |= {"totalSteps": STEPS, "trainBatchSize": 64}
    spec["training"].pop("warmup", None)
    spec["rollout"] = {"engine": "transformers", "responsesPerPrompt": 8}
    spec["algorithm"] = {"klLossCoef": 0.001}
    spec["checkpoint"] = {"saveFreq": STEPS}
    spec["cluster"]["workers"][0]["replicas"] = 1
    return {**job, "metadata": {"name": NAME}, "spec": spec}


def read_exposition(cluster: Cluster, service: str, namespace: str, port: int) -> str:
    """Read /metrics of a service through the API server."""
    return cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{namespace}/services/{service}:{port}/proxy/metrics")


def test_promql_returns_the_values_of_the_trainer(scraped: Scraped) -> None:
    written = {line["step"]: line for line in scraped.metrics}
    assert sorted(written) == list(range(1, STEPS + 1))
    selector = f'{{job="{NAME}", namespace="{NAMESPACE}"}}[1h]'
    (steps,) = scraped.server.query(f"rlt_trainer_step{selector}")
    step_at = dict(steps.samples)
    for name, key in COMPARED.items():
        (series,) = scraped.server.query(f"{name}{selector}")
        compared = {step_at[moment]: value for moment, value in series.samples if step_at[moment] >= 1}
        assert len(compared) >= STEPS // 2, f"{name}: too few steps were scraped"
        for step, value in compared.items():
            assert value == pytest.approx(written[int(step)][key], rel=1e-9), (name, step)


def test_phases_of_a_step_add_up_to_its_duration(scraped: Scraped) -> None:
    selector = f'{{job="{NAME}", namespace="{NAMESPACE}"}}'
    at = scraped.in_training
    (share,) = scraped.server.query(
        f"sum(rlt_trainer_step_seconds{selector}) / sum(rlt_trainer_step_duration_seconds{selector})", at=at
    )
    assert share.value == pytest.approx(1.0, abs=0.05)
    phases = {series.labels["phase"] for series in scraped.server.query(f"rlt_trainer_step_seconds{selector}", at=at)}
    assert len(phases) >= 3, phases


def test_promql_returns_the_values_of_the_operator(scraped: Scraped) -> None:
    labels = f'name="{NAME}", namespace="{NAMESPACE}"'
    progress = scraped.job["status"]["progress"]
    scraped.server.await_value(f'rlt_job_phase{{{labels}, phase="Succeeded"}}', 1, timeout_s=EVENT_TIMEOUT_S)
    scraped.server.await_value(f'rlt_job_phase{{{labels}, phase="Running"}}', 0, timeout_s=EVENT_TIMEOUT_S)
    scraped.server.await_value(f"rlt_job_step{{{labels}}}", STEPS, timeout_s=EVENT_TIMEOUT_S)
    scraped.server.await_value(f"rlt_job_total_steps{{{labels}}}", STEPS, timeout_s=EVENT_TIMEOUT_S)
    scraped.server.await_value(f"rlt_job_reward{{{labels}}}", progress["metrics"]["reward"], timeout_s=EVENT_TIMEOUT_S)
    (reconciliations,) = scraped.server.query(
        "sum by (pod) (rlt_operator_reconcile_duration_seconds_count) and on (pod) rlt_operator_leader == 1"
    )
    assert reconciliations.value >= STEPS / 5
    assert reconciliations.labels["pod"].startswith(RELEASE)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_every_panel_of_the_dashboards_has_data_during_training(scraped: Scraped, dashboard: Dashboard) -> None:
    """Quantiles of the operator are NaN without an observation in the last minute.

    The training may be shorter than the minute between two evaluations of a subquery.
    """
    values = {"$namespace": NAMESPACE, "$job": NAME, "$__rate_interval": "1m", "$__range": "10m"}
    for panel in dashboard.list_panels():
        for query in panel.queries if not panel.requires else ():
            expression = re.sub(r"\$(namespace|job|__\w+)\b", lambda found: values[found[0]], query.expression)
            expression = expression.replace(":1m]", ":1s]")
            found = scraped.server.query(expression, at=scraped.in_training)
            assert found, f"{panel.title}: {expression}"
            if dashboard is RUN:
                assert all(math.isfinite(series.value) for series in found), f"{panel.title}: {found}"


def test_promtool_accepts_the_exposition(cluster: Cluster, scraped: Scraped) -> None:
    promtool("check", "metrics", input=scraped.exposition)
    promtool("check", "metrics", input=read_exposition(cluster, RELEASE, SYSTEM_NAMESPACE, 8080))
