"""Run directories as the source of the page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rlt.errors import NotFoundError, RltError
from rlt.metric_text import compute_run_reward, find_page_metrics
from rlt.runs.directory import CONFIGS, ROLLOUTS, is_run_directory, list_rollout_steps, read_config
from rlt.runs.pages import SPANS, RolloutQuery, read_rollout_page, read_spans
from rlt.runs.run import Run, read_run
from rlt.runs.suite_results import GATES, read_changes
from rlt_api.spec.plain_secrets import find_secrets
from rlt_pod.report.step_history import METRICS_FILE
from rlt_ui.description import describe_run, summarize_run
from rlt_ui.logs import clean, list_files, read_file
from rlt_ui.masks import mask, mask_rollouts
from rlt_ui.source import Json, UsageQuery, build_columns, sample

MAX_DEPTH = 3
"""Maximum depth of a run directory below the folder."""
MAX_RUNS = 500
"""Maximum number of runs in a folder."""
CACHE_S = 2.0
"""Time for which the list of directories, and its version, serve all viewers."""
MAX_CACHED_RUNS = 8
"""Maximum number of runs whose metrics are in memory: a thousand steps take about 10 MB."""


class RunFolder:
    """The run directories in a folder, or one run directory."""

    def __init__(self, folder: Path, origin: str | None = None) -> None:
        """`origin`: where the folder is copied from, as its name."""
        self._folder = folder
        self._name = origin or str(folder)
        self._runs: dict[str, tuple[str, Run]] = {}
        self._rows: dict[str, tuple[str, Json]] = {}
        self._found: tuple[float, dict[str, Path]] = (float("-inf"), {})
        self._version: tuple[float, str] = (float("-inf"), "")
        self._versions = asyncio.Lock()

    @property
    def title(self) -> str:
        """The path, or where it is copied from."""
        return self._name

    @property
    def only_run(self) -> str | None:
        """The ID of the run if the folder is a run directory."""
        return self._folder.absolute().name if is_run_directory(self._folder) else None

    @property
    def has_usage(self) -> bool:
        """Run directories have no accelerator hours."""
        return False

    async def read_usage(self, query: UsageQuery) -> Json:
        """Raises NotFoundError."""
        raise NotFoundError("Run directories have no accelerator hours: jobs have them.", next="rlt ui -A")

    async def list_runs(self) -> list[Json]:
        """A row for each run directory."""
        return await asyncio.to_thread(lambda: [self._get_row(run, path) for run, path in self._find().items()])

    async def describe(self, run: str) -> Json:
        """What the directory has recorded."""
        return await asyncio.to_thread(lambda: describe_directory(run, self._path(run), self._read(run)))

    async def read_metrics(self, run: str) -> Json:
        """The metrics of metrics.jsonl."""
        found = await asyncio.to_thread(self._read, run)
        return build_columns(found.steps, ())

    async def read_rollouts(self, run: str, step: int | None, query: RolloutQuery) -> Json:
        """A page of the rollouts, with secrets masked."""
        return await asyncio.to_thread(lambda: read_page(self._path(run), step, query))

    async def read_spans(self, run: str, step: int) -> Json:
        """The spans of spans.jsonl."""
        spans, notes = await asyncio.to_thread(lambda: read_spans(self._path(run), step))
        return {"step": step, "spans": spans, "notes": list(notes)}

    async def read_changes(self, run: str) -> Json:
        """The changes.json of each suite, with secrets masked."""
        return await asyncio.to_thread(lambda: read_suite_changes(self._path(run)))

    async def list_logs(self, run: str) -> Json:
        """The logs in attempts/."""
        return {"logs": await asyncio.to_thread(lambda: list_files(self._path(run))), "notes": []}

    async def read_log(self, run: str, log: str) -> Json:
        """The end of a log in attempts/."""
        return await asyncio.to_thread(lambda: clean(read_file(self._path(run), log), list_secrets(self._path(run))))

    async def load_run(self, run: str) -> Run:
        """The records of the directory."""
        return await asyncio.to_thread(self._read, run)

    async def get_version(self, run: str | None) -> str:
        """The sizes and times of the files."""
        if run is not None:
            return await asyncio.to_thread(lambda: read_version(self._path(run)))
        async with self._versions:  # one reads for all viewers
            if time.monotonic() - self._version[0] > CACHE_S:
                found = await asyncio.to_thread(lambda: [*map(read_version, self._find().values())])
                self._version = time.monotonic(), str(hash(tuple(found)))
            return self._version[1]

    def _find(self) -> dict[str, Path]:
        """The run directories by ID: the path relative to the folder. The ID of the folder itself is its name."""
        if time.monotonic() - self._found[0] > CACHE_S:
            paths = find_run_directories(self._folder)
            runs = {path.relative_to(self._folder).as_posix(): path for path in paths}
            self._found = time.monotonic(), {self.only_run: self._folder} if self.only_run else runs
        return self._found[1]

    def _path(self, run: str) -> Path:
        """The directory of a run. The ID is only compared: a path in it is not followed."""
        path = self._find().get(run)
        if path is None:
            raise NotFoundError(f"{self._name} has no run {run}.", next=f"rlt ui {self._name}")
        return path

    def _read(self, run: str) -> Run:
        path = self._path(run)
        version = read_version(path)
        cached = self._runs.pop(run, None)
        if cached is None or cached[0] != version:
            place = self._name if path == self._folder else f"{self._name}/{run}"
            cached = version, replace(read_run(path), source=place)
        self._runs[run] = cached  # the latest is last
        for oldest in list(self._runs)[:-MAX_CACHED_RUNS]:
            self._runs.pop(oldest, None)
        return cached[1]

    def _get_row(self, run: str, path: Path) -> Json:
        version = read_version(path)
        cached = self._rows.get(run)
        if cached is None or cached[0] != version:
            try:
                row = build_row(run, path, read_run(path))
            except RltError as error:
                row = {"id": run, "name": run, "phase": "Unknown", "sentence": error.message}
            self._rows[run] = cached = version, row
        return cached[1]


def find_run_directories(folder: Path) -> list[Path]:
    """The run directories below a folder, the first MAX_RUNS by path. Links are not followed."""
    return [path for path, _ in zip(_iterate(folder, MAX_DEPTH), range(MAX_RUNS), strict=False)]


def _iterate(folder: Path, depth: int) -> Iterator[Path]:
    try:
        folders = sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return
    for each in folders:
        if each.name.startswith("."):
            continue
        if is_run_directory(each):
            yield each
        elif depth > 1:
            yield from _iterate(each, depth - 1)


def read_version(path: Path) -> str:
    """The size and the time of each file that the page reads."""
    stats = []
    for name in (*CONFIGS, METRICS_FILE, SPANS, ROLLOUTS, GATES, "attempts"):
        try:
            found = (path / name).stat()
            stats.append(f"{name}:{found.st_size}:{found.st_mtime_ns}")
        except OSError:
            continue
    return " ".join(stats)


def build_row(run_id: str, path: Path, run: Run) -> Json:
    """The row of a run in the list."""
    metric = find_page_metrics(run.steps).get("reward")
    rewards = [step.get(metric) for step in run.steps if metric in step] if metric else []
    return {
        **summarize_run(run),
        "id": run_id,
        "reward": compute_run_reward(run.steps),
        "rewards": sample(rewards),
        "created": find_time(path, CONFIGS),
        "updated": find_time(path, (METRICS_FILE, *CONFIGS)),
        "findings": len(run.findings),
    }


def describe_directory(run_id: str, path: Path, run: Run) -> Json:
    """What the directory of a run has recorded, but its metrics, rollouts and spans."""
    return {
        **build_row(run_id, path, run),
        **describe_run(run),
        "attempts": list_attempts(path),
        "rolloutSteps": list_rollout_steps(path),
        "missing": ["preflight checks", "conditions", "pods", "events"],
        "commands": [f"rlt report {run.source}", f"rlt compare {run.source} OTHER"],
    }


def find_time(path: Path, names: Iterable[str]) -> float | None:
    """Unix time of the latest change to the first file that exists. The config is written at each start."""
    for name in names:
        try:
            return (path / name).stat().st_mtime
        except OSError:
            continue
    return None


def list_attempts(path: Path) -> list[Json]:
    """The attempts whose logs the directory has: number, and Unix time of the program log's latest change."""
    found: list[Json] = []
    for folder in (path / "attempts").glob("*"):
        log = folder / "program.log"
        if folder.name.isdigit() and folder.is_dir():
            found.append({"number": int(folder.name), "logTime": log.stat().st_mtime if log.is_file() else None})
    return sorted(found, key=lambda each: int(each["number"]))


def read_page(path: Path, step: int | None, query: RolloutQuery) -> Json:
    """A page of rollouts as JSON. A text that the config has as a secret is masked."""
    steps = list_rollout_steps(path)
    chosen = step if step is not None else (steps[-1] if steps else None)
    if chosen is None or chosen not in steps:
        missing = "No rollouts are recorded." if chosen is None else f"Step {chosen} has no recorded rollouts."
        return {"step": chosen, "steps": steps, "rollouts": [], "matched": 0, "recorded": 0, "notes": [missing]}
    page = read_rollout_page(path, chosen, query)
    return {
        "step": chosen,
        "steps": steps,
        "rollouts": mask_rollouts(page.rollouts, list_secrets(path)),
        "matched": page.matched,
        "recorded": page.recorded,
        "notes": list(page.notes),
    }


def read_suite_changes(path: Path) -> Json:
    """The changes of the suites. A text that the config has as a secret is masked."""
    notes: list[str] = []
    suites = read_changes(path, notes)
    return {"suites": mask(suites, list_secrets(path)), "notes": notes}


def list_secrets(path: Path) -> list[str]:
    """The texts that the config of a run directory has as secrets. They are masked in its Run."""
    return [each.value for each in find_secrets(dict(read_config(path, [])), "spec")]
