"""The status page, summaries, bars and ages.

- the page shows all parts of the status that are set, and omits the others;
- conditions of an earlier generation are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click
import pytest

from rlt.job_state import can_become_true, draw_progress_bar, is_true, summarize
from rlt.kube_context import KubeContext
from rlt.metric_text import build_metric_rows, draw_sparkline
from rlt_cli.age import format_age
from rlt_cli.pages.job import format_page as format_colored_page
from rlt_pod.report.extremes import select_extremes, select_rollouts

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def format_page(*arguments: Any) -> str:
    return click.unstyle(format_colored_page(*arguments))


def condition(type: str, status: str = "True", *, generation: int = 1, **more: str) -> dict[str, Any]:
    return {
        "type": type,
        "status": status,
        "reason": "Because",
        "message": "so it is",
        "lastTransitionTime": "2026-01-02T03:02:05Z",
        "observedGeneration": generation,
        **more,
    }


def job(*conditions: dict[str, Any], phase: str = "Running", progress: bool = True) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": phase, "message": "The Ray job is running.", "conditions": list(conditions)}
    status |= {"model": "/models/qwen", "algorithm": "grpo"}
    if progress:
        metrics = {"reward": 0.5}
        status["progress"] = {
            "step": 45,
            "totalSteps": 100,
            "percent": 45,
            "display": "45%",
            "eta": "3m10s",
            "metrics": metrics,
        }
    metadata = {"name": "sum", "namespace": "demo", "generation": 1, "creationTimestamp": "2026-01-02T03:00:05Z"}
    return {"metadata": metadata, "status": status}


def test_a_metric_is_shown_under_the_name_that_the_run_has() -> None:
    shown = format_page(job(), [], [{"step": 1, "critic/score/mean": 0.25, "actor/entropy_loss": 2.0}], NOW)
    assert [row.split()[:2] for row in shown.splitlines() if row.startswith(("reward", "entropy"))] == [
        ["reward", "0.25"],
        ["entropy", "2"],
    ]


def test_the_page_shows_the_sandboxes() -> None:
    def find_line(**sandboxes: float) -> list[str]:
        shown = job()
        shown["status"]["sandboxes"] = {"ready": 3, "claimed": 60, "failed": 1, **sandboxes}
        return [line for line in format_page(shown, [], [], NOW).splitlines() if line.startswith("sandboxes")]

    (line,) = find_line(claimSecondsP50=0.25, claimSecondsP99=4)
    assert line.split(maxsplit=1)[1] == "3 ready, 60 claimed, 1 failed; claims p50 0.25 s, p99 4 s"
    (line,) = find_line()
    assert line.endswith("3 ready, 60 claimed, 1 failed")


def test_the_page_shows_failed_attempts() -> None:
    attempt = {
        "number": 1,
        "completionTime": "2026-01-02T03:02:05Z",
        "reason": "ProgramFailed",
        "message": "boom",
        "step": 40,
    }
    restarted = job()
    restarted["status"]["attempts"] = [attempt, {**attempt, "number": 2, "nodeAtFault": "gpu-7"}]
    rows = [line.split() for line in format_page(restarted, [], [], NOW).splitlines() if line.endswith("boom")]
    assert rows[0][:5] == ["1", "2m", "ago", "ProgramFailed", "40"]
    assert rows[1][5:] == ["gpu-7", "boom"]


def test_the_page_of_a_running_job() -> None:
    pod = {
        "metadata": {"name": "sum-head", "creationTimestamp": "2026-01-02T03:01:05Z"},
        "spec": {"nodeName": "node-1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"restartCount": 2}]},
    }
    history = [{"step": step, "critic/rewards/mean": step / 10} for step in range(1, 9)]
    assert format_page(job(condition("Running")), [pod], history, NOW).splitlines() == [
        "demo/sum  Running  /models/qwen, grpo",
        "The Ray job is running.",
        "",
        "██████████████████░░░░░░░░░░░░░░░░░░░░░░ 45%  step 45 of 100, 3m10s left",
        "",
        "CONDITION   STATUS   REASON    AGE   MESSAGE",
        "Running     True     Because   2m    so it is",
        "",
        "POD        NODE     READY   RESTARTS   AGE",
        "sum-head   node-1   yes     2          3m",
        "",
        "METRIC   LAST 10   NOW   8 STEPS",
        "reward   0.45      0.8   ▁▂▃▄▅▆▇█",
        "",
        "No problems found.",
    ]


def test_the_facts_of_a_run_that_has_ended_are_shown() -> None:
    ended = job(phase="Succeeded")
    ended["status"] |= {"startTime": "2026-01-02T00:00:00Z", "completionTime": "2026-01-02T02:30:00Z", "gpus": 8}
    by = {"starting": 7200, "generate": 43200, "update": 14400, "idle": 7100, "lost": 100}
    ended["status"] |= {"usage": {"acceleratorSeconds": 72000, "by": by}, "restarts": 2, "disruptions": 1}
    ended["status"]["checkpoint"] = {"latestStep": 40, "path": "/mnt/rlt/runs/sum/checkpoints", "exportedPath": "/x"}
    ended["status"]["published"] = [{"url": "s3://a", "revision": "c0"}, {"url": "s3://b"}]
    ended["status"]["progress"] |= {"reward": 0.4, "metrics": {"reward": 0.5, "kl": 0.01, "entropy": 1.5}}
    facts = format_page(ended, [], [], NOW).split("\n\n")[2].splitlines()
    assert facts == [
        "started       2026-01-02T00:00:00Z, 3h ago",
        "ended         2026-01-02T02:30:00Z, after 2h",
        "attempts      4: 2 after a failure, 1 after a disruption",
        "accelerators  8 requested, 20 accelerator hours: starting 10 %, generate 60 %, update 20 %, idle 10 %",
        "checkpoint    step 40 in /mnt/rlt/runs/sum/checkpoints",
        "model         /x",
        "published     s3://a: c0; s3://b: failed",
        "results       reward (mean of 10 steps) 0.4, KL 0.01, entropy 1.5",
    ]
    assert "results" not in format_page(ended, [], [{"step": 1, "critic/rewards/mean": 0.5}], NOW)


def test_the_summary_has_the_reward_of_the_run() -> None:
    running = job()
    assert summarize(running) == "Running: step 45 of 100, reward 0.5, 3m10s left"
    running["status"]["progress"]["reward"] = 0.4
    assert summarize(running) == "Running: step 45 of 100, reward 0.4, 3m10s left"


def test_the_steps_that_have_succeeded_are_shown() -> None:
    prepared = job(condition("Running", "False"))
    step = {"name": "data", "headPodUid": "1", "completionTime": "2026-01-02T03:04:05Z"}
    prepared["status"]["prepared"] = [step]
    shown = format_page(prepared, [], [], NOW).splitlines()
    assert shown[shown.index("PREPARED   COMPLETED") + 1] == "data       2026-01-02T03:04:05Z"


def test_preflight_checks_are_shown_with_values_and_remedies() -> None:
    checked = job(condition("PreflightPassed", "False"))
    checked["status"]["preflight"] = [
        {
            "name": "all-reduce",
            "result": "passed",
            "value": "0.52 GB/s",
            "threshold": "0.10 GB/s",
            "message": "All sums are correct.",
        },
        {"name": "clocks", "result": "warned", "value": "31.5 s", "message": "A clock is wrong.", "remedy": "Use NTP."},
        {"name": "files", "result": "failed", "nodes": ["n1"], "message": "b cannot read /x.", "remedy": "Mount it."},
    ]
    shown = format_page(checked, [], [], NOW).splitlines()
    assert shown[shown.index("CHECK          VALUE       LIMIT       RESULT") + 1 :][:3] == [
        "✓ all-reduce   0.52 GB/s   0.10 GB/s   All sums are correct.",
        "! clocks       31.5 s                  A clock is wrong. Use NTP.",
        "✗ files                                b cannot read /x. (node n1) Mount it.",
    ]


def test_a_finding_is_a_card() -> None:
    failed = job(condition("Failed"))
    failed["status"]["findings"] = [
        {
            "code": "GpuOutOfMemory",
            "severity": "error",
            "message": "A process needs more GPU memory than is free.",
            "pod": "sum-workers-b",
            "rank": 0,
            "evidence": "CUDA out of memory",
            "remedy": "Lower it.",
            "source": "https://a.b",
        }
    ]
    shown = format_page(failed, [], [], NOW).splitlines()
    assert shown[shown.index("GpuOutOfMemory (error)") + 1 :][:5] == [
        "   what      A process needs more GPU memory than is free.",
        "   where     sum-workers-b, rank 0",
        "   evidence  CUDA out of memory",
        "   remedy    Lower it.",
        "   more      https://a.b",
    ]


def test_the_page_of_a_new_job_states_that_it_is_not_reconciled() -> None:
    fresh = {"metadata": {"name": "sum", "namespace": "demo"}}
    assert "The operator has not reconciled the job yet." in format_page(fresh, [], [], NOW)


def test_a_problem_is_shown_once() -> None:
    problem: dict[str, Any] = {"message": "no node has 8 GPUs", "reason": "Unschedulable"}
    text = format_page(job(condition("Failed", **problem), condition("Stalled", **problem)), [], [], NOW)
    assert text.splitlines()[-1] == "! Unschedulable: no node has 8 GPUs"


def test_a_summary_has_step_reward_and_time_left() -> None:
    assert summarize(job()) == "Running: step 45 of 100, reward 0.5, 3m10s left"
    assert summarize(job(phase="Pending", progress=False)) == "Pending: The Ray job is running."


def test_an_unknown_total_is_omitted() -> None:
    unknown = job()
    unknown["status"]["progress"] |= {"step": 12, "totalSteps": 0, "percent": 0, "display": "step 12", "eta": None}
    assert summarize(unknown, bar=20) == "Running: step 12, reward 0.5"
    assert format_page(unknown, [], [], NOW).splitlines()[3] == "step 12"


def test_a_summary_can_have_a_bar() -> None:
    assert summarize(job(), bar=4) == "█░░░ 45%  Running: step 45 of 100, reward 0.5, 3m10s left"


def test_a_condition_of_an_earlier_generation_is_ignored() -> None:
    resumed = job(condition("Suspended", generation=1))
    resumed["metadata"]["generation"] = 2
    assert not is_true(resumed, "Suspended")


@pytest.mark.parametrize(("wanted", "possible"), [("Succeeded", False), ("Running", False), ("Failed", True)])
def test_after_the_end_only_the_final_condition_is_true(wanted: str, possible: bool) -> None:
    assert can_become_true(job(condition("Failed")), wanted) is possible


@pytest.mark.parametrize(
    ("values", "bars"), [([], ""), ([1, 1], "▄▄"), ([0, 1], "▁█"), ([0, float("nan"), 7], "▁█"), (range(100), None)]
)
def test_sparklines(values: list[float], bars: str | None) -> None:
    drawn = draw_sparkline(list(values))
    assert drawn == bars if bars is not None else (len(drawn) <= 40 and drawn[0] == "▁" and drawn[-1] == "█")


@pytest.mark.parametrize(("percent", "bar"), [(0, "░░░░ 0%"), (50, "██░░ 50%"), (100, "████ 100%")])
def test_bars(percent: int, bar: str) -> None:
    assert draw_progress_bar({"totalSteps": 10, "percent": percent, "display": f"{percent}%"}, 4) == bar


def test_ages() -> None:
    ages = [format_age(f"2026-01-0{day}T03:0{minute}:05Z", NOW) for day, minute in ((2, 4), (2, 1), (1, 4))]
    assert ages == ["0s", "3m", "24h"]


@pytest.mark.parametrize(
    ("best", "worst", "kept"),
    [(None, None, [2, 3, 1]), (1, None, [3]), (None, 2, [2, 1]), (1, 1, [3, 1]), (2, 2, [3, 2, 1])],
)
def test_best_and_worst_rollouts(best: int | None, worst: int | None, kept: list[int]) -> None:
    rollouts: list[Mapping[str, Any]] = [{"reward": reward} for reward in (2, 3, 1)]
    assert [each["reward"] for each in select_rollouts(rollouts, best=best, worst=worst)] == kept


def test_nan_is_shown_as_a_number_and_not_as_a_bar() -> None:
    """The trainer writes NaN and infinity as null."""
    history: list[dict[str, float | None]] = [{"step": 1, "actor/grad_norm": 0.5}, {"step": 2, "actor/grad_norm": None}]
    assert "gradient norm   0.5       NaN   ▄" in format_page(job(), [], history, NOW)
    assert build_metric_rows(history, ["actor/grad_norm"]) == [(1, "0.5"), (2, "NaN")]


def test_a_reward_of_nan_is_the_worst() -> None:
    rollouts: list[Mapping[str, Any]] = [{"reward": None}, {"reward": 0.0}, {"reward": 1.0}]
    assert select_rollouts(rollouts, best=1, worst=1) == [{"reward": 1.0}, {"reward": None}]
    assert select_extremes(rollouts, 1) == [{"reward": 1.0}, {"reward": None}]


def test_a_command_line_repeats_the_kube_options() -> None:
    context = KubeContext("demo", None, "/home/me/my config")
    assert context.command_line("status sum") == "rlt status sum -n demo --kubeconfig '/home/me/my config'"
    assert KubeContext(None, None, None).command_line("get") == "rlt get"
