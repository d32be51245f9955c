"""A real Prometheus scrapes operator and trainer where their annotations say, and PromQL gives their own numbers back.

- each scrape of the trainer is what metrics.jsonl has for that step;
- the operator's series say what the job's status says;
- every panel of the chart's dashboard has data, and promtool has nothing against the exposition.
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

from cluster import Cluster
from environment import ROOT
from installation import CLAIM, RELEASE, SYSTEM_NAMESPACE, make_namespace
from jobs import Job, apply_job, await_job, holds, load_example, read_metrics
from prometheus import Prometheus, prometheus, promtool
from rlt_api.driver_report import METRICS_PORT

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
    """A job that has ended, and the Prometheus that watched it."""

    server: Prometheus
    job: Job
    metrics: list[dict[str, Any]]
    exposition: str
    """What the trainer served in mid-run."""

    @property
    def in_training(self) -> float:
        """Unix time of the last scrape of a step but the last, when the job still ran."""
        (steps,) = self.server.query(f'rlt_trainer_step{{job="{NAME}", namespace="{NAMESPACE}"}}[1h]')
        return max(moment for moment, step in steps.samples if 2 <= step < STEPS)


def scrape_config(targets: Path) -> dict[str, Any]:
    """Once a second what the file names, the labels that it serves taken as they are."""
    pods = {"job_name": "pods", "honor_labels": True, "file_sd_configs": [{"files": [str(targets)]}]}
    return {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [pods]}


def annotated_pods(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """The namespace's pods that ask to be scraped, as targets: Debian's Prometheus cannot ask Kubernetes itself."""
    targets = []
    for pod in json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]:
        told = pod["metadata"].get("annotations", {})
        if told.get(f"{ANNOTATION}/scrape") == "true" and pod["status"].get("podIP"):
            labels = {"namespace": namespace, "pod": pod["metadata"]["name"]}
            labels["__metrics_path__"] = told[f"{ANNOTATION}/path"]
            targets.append({"targets": [f"{pod['status']['podIP']}:{told[f'{ANNOTATION}/port']}"], "labels": labels})
    return targets


@pytest.fixture(scope="module")
def scraped(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """A short job, trained to its end under the eyes of a Prometheus."""
    if not cluster.layout:
        pytest.skip("the pods of a cluster elsewhere have no addresses that this machine reaches")
    clear(cluster)
    make_namespace(cluster, NAMESPACE)
    folder = tmp_path_factory.mktemp("prometheus")
    targets = folder / "targets.json"
    apply_job(cluster, NAMESPACE, short_job())
    await_job(
        cluster, NAMESPACE, NAME, lambda _: bool(annotated_pods(cluster, NAMESPACE)), what="a head", timeout_s=120
    )
    targets.write_text(json.dumps([*annotated_pods(cluster, NAMESPACE), *annotated_pods(cluster, SYSTEM_NAMESPACE)]))
    with prometheus(scrape_config(targets), folder) as server:
        running = await_job(
            cluster, NAMESPACE, NAME, lambda job: progress(job).get("step", 0) >= 2, what="step 2", timeout_s=600
        )
        exposition = served(cluster, f"{running['status']['rayCluster']['name']}-head-svc", NAMESPACE, METRICS_PORT)
        job = await_job(cluster, NAMESPACE, NAME, lambda job: holds(job, "Succeeded"), what="the end", timeout_s=600)
        yield Scraped(server, job, read_metrics(cluster, NAMESPACE, job), exposition)
    clear(cluster)


def clear(cluster: Cluster) -> None:
    """Delete the namespace and its volume, which an interrupted run leaves bound to a claim that is gone."""
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait", "--timeout=180s")
    cluster.kubectl("delete", "persistentvolume", f"{NAMESPACE}-{CLAIM}", "--ignore-not-found")


def short_job() -> Job:
    """Example 01, shorter, with the plain sampler, and with steps long enough for each to be scraped."""
    job = load_example("01-arithmetic-grpo.yaml")
    spec = job["spec"]
    spec["training"] |= {"totalSteps": STEPS, "trainBatchSize": 64}
    spec["training"].pop("warmup", None)
    spec["rollout"] = {"engine": "transformers", "responsesPerPrompt": 8}
    spec["algorithm"] = {"klLossCoef": 0.001}
    spec["checkpoint"] = {"saveFreq": STEPS}
    return {**job, "metadata": {"name": NAME}, "spec": spec}


def progress(job: Job) -> dict[str, Any]:
    return dict(job["status"].get("progress") or {})


def served(cluster: Cluster, service: str, namespace: str, port: int) -> str:
    """/metrics of a service, through the API server."""
    return cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{namespace}/services/{service}:{port}/proxy/metrics")


def test_promql_gives_the_trainers_own_numbers_back(scraped: Scraped) -> None:
    written = {line["step"]: line for line in scraped.metrics}
    assert sorted(written) == list(range(1, STEPS + 1))
    here = f'{{job="{NAME}", namespace="{NAMESPACE}"}}[1h]'
    (steps,) = scraped.server.query(f"rlt_trainer_step{here}")
    step_at = dict(steps.samples)
    for name, key in COMPARED.items():
        (series,) = scraped.server.query(f"{name}{here}")
        compared = {step_at[moment]: value for moment, value in series.samples if step_at[moment] >= 1}
        assert len(compared) >= STEPS // 2, f"{name}: too few steps were scraped"
        for step, value in compared.items():
            assert value == pytest.approx(written[int(step)][key], rel=1e-9), (name, step)


def test_phases_of_a_step_add_up_to_its_duration(scraped: Scraped) -> None:
    here, at = f'{{job="{NAME}", namespace="{NAMESPACE}"}}', scraped.in_training
    (share,) = scraped.server.query(
        f"sum(rlt_trainer_step_seconds{here}) / sum(rlt_trainer_step_duration_seconds{here})", at=at
    )
    assert share.value == pytest.approx(1.0, abs=0.05)
    phases = {series.labels["phase"] for series in scraped.server.query(f"rlt_trainer_step_seconds{here}", at=at)}
    assert len(phases) >= 3, phases


def test_promql_gives_the_operators_numbers_back(scraped: Scraped) -> None:
    here = f'name="{NAME}", namespace="{NAMESPACE}"'
    said = scraped.job["status"]["progress"]
    scraped.server.await_value(f'rlt_job_phase{{{here}, phase="Succeeded"}}', 1, timeout_s=30)
    scraped.server.await_value(f'rlt_job_phase{{{here}, phase="Running"}}', 0, timeout_s=30)
    scraped.server.await_value(f"rlt_job_step{{{here}}}", STEPS, timeout_s=30)
    scraped.server.await_value(f"rlt_job_total_steps{{{here}}}", STEPS, timeout_s=30)
    scraped.server.await_value(f"rlt_job_reward{{{here}}}", said["metrics"]["reward"], timeout_s=30)
    (looks,) = scraped.server.query("rlt_operator_reconcile_duration_seconds_count")
    assert looks.value >= STEPS / 5
    assert looks.labels["pod"].startswith(RELEASE)


def test_every_panel_of_the_dashboard_has_data_while_a_job_trains(scraped: Scraped) -> None:
    board = json.loads((ROOT / "charts/rlt-operator/dashboards/rlt-training.json").read_text())
    values = {"$namespace": NAMESPACE, "$job": NAME, "$__rate_interval": "1m"}
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            expression = re.sub(r"\$\w+", lambda found: values[found[0]], target["expr"])
            found = scraped.server.query(expression, at=scraped.in_training)
            assert found, f"{panel['title']}: {expression}"
            assert all(math.isfinite(series.value) for series in found), f"{panel['title']}: {found}"


def test_promtool_has_nothing_against_what_is_served(cluster: Cluster, scraped: Scraped) -> None:
    promtool("check", "metrics", input=scraped.exposition)
    promtool("check", "metrics", input=served(cluster, RELEASE, SYSTEM_NAMESPACE, 8080))
