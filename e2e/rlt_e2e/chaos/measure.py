"""Run a job, inject a fault, and measure: time to name it, time to recover, steps lost, the result, and the usage."""

from __future__ import annotations

import hashlib
import json
import shutil
import statistics
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlt_e2e import usage
from rlt_e2e.chaos import bucket, volume
from rlt_e2e.chaos.faults import Fault, Injected
from rlt_e2e.chaos.jobs import FAULT_AFTER, build_job
from rlt_e2e.chaos.pods import Target
from rlt_e2e.cluster import Cluster
from rlt_e2e.installation import CLAIM, create_namespace
from rlt_e2e.jobs import TERMINAL, Job, apply_job, get_condition, read_job

TIMEOUT_S = 900.0
STATUS_INTERVAL_S = 1.0
MEASURED = ("timing_s/", "timing_per_token_ms/", "perf/", "overlap_s/")
"""Metrics that depend on the speed of the machine. All others are deterministic."""
STEP = "timing_s/step"
PODS = "perf/rollout_pods"


@dataclass
class Run:
    """What a run has shown. Times are from time.monotonic."""

    began: float
    job: Job
    lines: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    """Arrival and content of each line in metrics.jsonl."""
    injected: float | None = None
    named: float | None = None
    text: str = ""
    """The text of the status that named the fault."""
    attempted: float | None = None
    """When the status had the first attempt that ended early."""
    injection: Future[Injected] | None = None
    held: usage.Held = field(default_factory=usage.Held)
    ended: float = 0.0


@dataclass(frozen=True)
class Result:
    """What a training has computed."""

    metrics: dict[int, dict[str, Any]]
    """Step -> deterministic metrics of its last line in metrics.jsonl."""
    weights: str
    """SHA-256 of the exported model."""


@dataclass(frozen=True)
class Outcome:
    """The row of a fault. Times are seconds since the fault."""

    fault: str
    victim: str
    phase: str
    attempts: list[str]
    """The reasons of the attempts that ended early."""
    named_s: float | None
    """None: there was nothing to name, or the status did not name it (`expected` is then not empty)."""
    expected: tuple[str, ...]
    text: str
    """The text of the status that named it, or the last message of the job."""
    recovered_s: float | None
    """The first step that finished after the fault or, if the attempt ended, in the next attempt; with
    Fault.serving_pods, the first one that has them. None for a fault that accompanies the job from its start."""
    lost_steps: int
    """Steps that were repeated."""
    same_result: bool
    took_s: float
    usage_error: float = 0.0
    """Difference between status.usage and the accelerator seconds that the pods held, as a share of these."""
    median_step_s: float = 0.0
    """Of the steps before the fault."""
    longest_step_s: float = 0.0
    """Of the steps from the fault until `recovered_s`."""

    @property
    def is_survived(self) -> bool:
        """Whether the fault was named, if there was anything to name, the job has the undisturbed result, and its usage
        adds up."""
        is_named = self.named_s is not None or not self.expected
        return self.phase == "Succeeded" and self.same_result and is_named and self.is_counted

    @property
    def is_counted(self) -> bool:
        """Whether status.usage has what the pods held."""
        return abs(self.usage_error) <= usage.MAX_ERROR


def run_job(cluster: Cluster, name: str, fault: Fault | None, *, rollout_pods: int) -> tuple[Run, Result]:
    """Run the learning job in its own namespace, with or without a fault, and delete the namespace.

    Raises TimeoutError if the job does not end.
    """
    assert cluster.layout
    namespace = f"chaos-{name}"
    _remove(cluster, namespace)
    folder = create_namespace(cluster, namespace)
    assert folder
    files = folder
    if fault and fault.volume_mb:
        volume.mount_everywhere(cluster.layout, folder, size_mb=fault.volume_mb)
        files = volume.locate(cluster.layout, folder)
    policy = fault.restart_policy if fault else "Recreate"
    group = fault.rollout_group if fault else None
    job = build_job(name, rollout_pods=rollout_pods, rollout_group=group, restart_policy=policy)
    storage = ExitStack()
    if fault and fault.in_bucket:
        files = storage.enter_context(bucket.replace_volume(cluster, namespace, job, folder))
    usage.reserve(cluster, namespace, job)
    run = Run(time.monotonic(), job)
    try:
        with ThreadPoolExecutor() as pool:
            _follow(run, Target(cluster, namespace, name, files), fault, pool)
        return run, read_result(files, name)
    finally:
        if run.injection and not run.injection.exception():
            run.injection.result().respond()
            run.injection.result().clean()
        _remove(cluster, namespace)
        storage.close()
        if fault and fault.volume_mb:
            volume.unmount_everywhere(cluster.layout, folder)
        shutil.rmtree(folder)


def measure(fault: Fault, run: Run, result: Result, expected: Result) -> Outcome:
    """Compare a run with a fault with the undisturbed one. Raises ValueError if no step had `fault.serving_pods`."""
    assert run.injected
    assert run.injection
    injected = run.injection.result()
    happened = injected.at or run.injected
    since = max(happened, run.attempted or 0.0)
    after = [
        arrived
        for arrived, line in run.lines
        if arrived > since and not fault.from_start and line.get(PODS, 0) >= fault.serving_pods
    ]
    if fault.serving_pods and not after:
        raise ValueError(f"no step had {fault.serving_pods} rollout pods")
    before = [line[STEP] for arrived, line in run.lines if arrived <= happened]
    until = [line[STEP] for arrived, line in run.lines if after and happened < arrived <= after[0]]
    compared = {step: expected.metrics.get(step) for step in result.metrics}  # a full volume loses lines
    return Outcome(
        fault=fault.name,
        victim=injected.victim,
        phase=run.job["status"]["phase"],
        attempts=[each["reason"] for each in run.job["status"].get("attempts", [])],
        named_s=round(run.named - happened, 1) if run.named else None,
        expected=injected.named_by,
        text=run.text or describe(run.job),
        recovered_s=round(after[0] - happened, 1) if after else None,
        lost_steps=len(run.lines) - len({line["step"] for _, line in run.lines}),
        same_result=result.metrics == compared and result.weights == expected.weights,
        took_s=round(run.ended - run.began, 1),
        usage_error=round(usage.compute_error(run.job, run.held), 4),
        median_step_s=round(statistics.median(before), 2) if before else 0.0,
        longest_step_s=round(max(until), 2) if until else 0.0,
    )


def read_result(volume: Path, job: str) -> Result:
    """Read the result of a job from its run directory on the volume, or from its objects in a bucket."""
    (run,) = volume.glob(f"runs/{job}-*")
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    metrics = {
        line["step"]: {name: value for name, value in line.items() if not name.startswith(MEASURED)} for line in lines
    }
    exported = next(run.glob("export/**/model.safetensors"), None)
    weights = hashlib.sha256(exported.read_bytes()).hexdigest() if exported else ""
    return Result(metrics, weights)


def describe(job: Job) -> str:
    """Return the text of the status that can name a fault: the latest attempt, the disruption, Running, the message."""
    status = job["status"]
    running = get_condition(job, "Running")
    parts = [f"{running['reason']}: {running['message']}", status.get("message", "")]
    for attempt in status.get("attempts", [])[-1:]:
        parts.insert(0, f"{attempt['reason']}: {attempt['message']}")
    if disruption := status.get("disruption"):
        parts.insert(0, f"Disrupted: {disruption['message']}")
    return "\n".join(parts)


def _follow(run: Run, target: Target, fault: Fault | None, pool: ThreadPoolExecutor) -> None:
    """Apply the job, inject the fault, and follow the job to its end."""
    apply_job(target.cluster, target.namespace, run.job)
    next_status = 0.0
    while run.ended == 0:
        now = time.monotonic()
        _read_lines(target.volume, run, now)
        if fault and not run.injection and (fault.from_start or len(run.lines) >= FAULT_AFTER):
            run.injected = now
            run.injection = pool.submit(fault.inject, target)
        if now >= next_status:
            next_status = now + STATUS_INTERVAL_S
            with suppress(ValueError):  # the API server is stopped
                run.job = read_job(target.cluster, target.namespace, target.job)
        run.held.observe(target.cluster, target.namespace, target.job, time.time())
        status = run.job.get("status", {})
        if status.get("attempts") and not run.attempted:
            run.attempted = now
        injected = run.injection.result() if run.injection and run.injection.done() else None
        if injected and injected.named_by and not run.named:
            text = describe(run.job)
            if all(part in text for part in injected.named_by):
                run.named = now
                run.text = text
                pool.submit(injected.respond)
        if status.get("phase") in TERMINAL and usage.is_released(run.job) and (injected or not fault):
            run.ended = now
        if now > run.began + TIMEOUT_S:
            raise TimeoutError(f"{target.job} did not end within {TIMEOUT_S:.0f} s: {json.dumps(status)}")
        time.sleep(0.2)


def _read_lines(folder: Path, run: Run, now: float) -> None:
    for file in folder.glob("runs/*/metrics.jsonl"):
        complete = file.read_text().rpartition("\n")[0].splitlines()
        run.lines += [(now, json.loads(line)) for line in complete[len(run.lines) :]]


def _remove(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait", "--timeout=400s")
    cluster.kubectl("delete", "persistentvolume", f"{namespace}-{CLAIM}", "--ignore-not-found")
