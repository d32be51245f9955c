"""A run as the page shows it. Pure."""

from __future__ import annotations

from rlt.runs.run import Run
from rlt_ui.defaults import find_changed
from rlt_ui.source import Json, get_text


def summarize_run(run: Run) -> Json:
    """Name, phase and progress."""
    return {
        "name": run.name,
        "phase": run.phase,
        "sentence": run.sentence,
        "step": run.steps[-1]["step"] if run.steps else 0,
        "totalSteps": find_total_steps(run),
        "model": get_text(run.config, "model", "path"),
        "algorithm": get_text(run.config, "algorithm", "advEstimator"),
    }


def describe_run(run: Run) -> Json:
    """Everything about a run but its metrics and rollouts."""
    return {
        **summarize_run(run),
        "source": run.source,
        "config": dict(run.config),
        "changed": find_changed(run.config),
        "findings": list(run.findings),
        "attempts": list(run.attempts),
        "gates": list(run.gates),
        "details": dict(run.details),
        "notes": list(run.notes),
    }


def restore_run(described: Json, columns: Json) -> Run:
    """The parts of a run that a comparison reads, from `describe` and `read_metrics` of its source."""
    metrics = columns["metrics"]
    steps = [
        {"step": step, **{name: values[row] for name, values in metrics.items() if values[row] is not None}}
        for row, step in enumerate(columns["steps"])
    ]
    keys = ("name", "source", "phase", "sentence", "config")
    return Run(**{key: described[key] for key in keys}, steps=steps, notes=(*described["notes"], *columns["notes"]))


def find_total_steps(run: Run) -> int | None:
    """training.totalSteps. None if the config does not have it."""
    training = run.config.get("training")
    total = training.get("totalSteps") if isinstance(training, dict) else None
    return total if isinstance(total, int) else None
