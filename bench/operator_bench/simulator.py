"""The Ray heads of all jobs in one process: Ray's job API on port 8265 and the trainer's /progress on port 8090.

A head is an address of this machine. Its job starts when it is submitted and finishes a step every `seconds_per_step`,
so that the time of each step is known exactly. `python -m operator_bench.simulator PORT` serves, with the control
server on PORT of 127.0.0.1:

    GET /heads      address -> when its job started (time.time)
    PUT /settings   {"seconds_per_step": …, "total_steps": …, "paused_at": …} of all jobs, also of those that run
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import sys
import time
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aiohttp import web

from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.job_status import ProgressMetrics
from rlt_core.names import DASHBOARD_PORT
from rlt_pod.command.run_record import RECORD_SUFFIX, RECORD_VERSION
from rlt_pod.report.driver_report import METRICS_PORT, PROGRESS_PREFIX

STEPS = 400
NUM_METRICS = 70
"""Each run has a record of 90 kB, as a long run of the trainer has."""


@cache
def build_record() -> str:
    """Build the record of a run in base64."""
    numbers = random.Random(0)
    metrics = {f"metric/{name}": [round(numbers.random(), 5) for _ in range(STEPS)] for name in range(NUM_METRICS)}
    record = {"version": RECORD_VERSION, "steps": list(range(1, STEPS + 1)), "metrics": metrics}
    return base64.b64encode(zlib.compress(json.dumps(record).encode())).decode()


@dataclass
class Settings:
    """The training of all jobs."""

    seconds_per_step: float = 10.0
    total_steps: int = 10_000
    paused_at: float | None = None
    """If it is set, the trainings stand still since then (time.time)."""


@dataclass
class Heads:
    """All heads. A head exists from its first Ray job on."""

    settings: Settings = field(default_factory=Settings)
    jobs: dict[str, dict[str, float]] = field(default_factory=dict)
    """Address -> ID of the Ray job -> when it started (time.time)."""

    async def submit(self, request: web.Request) -> web.Response:
        """POST /api/jobs/"""
        job_id = (await request.json())["submission_id"]
        self.jobs.setdefault(_get_address(request), {}).setdefault(job_id, time.time())
        return web.json_response({"submission_id": job_id, "job_id": job_id})

    async def get_job(self, request: web.Request) -> web.Response:
        """GET /api/jobs/ID"""
        job_id = request.match_info["id"]
        started = self.jobs.get(_get_address(request), {}).get(job_id)
        if started is None:
            return web.Response(status=404, text=f"Job {job_id} does not exist")
        ended = self._is_ended(started)
        return web.json_response(
            {
                "type": "SUBMISSION",
                "submission_id": job_id,
                "status": "SUCCEEDED" if ended else "RUNNING",
                "message": "",
                "start_time": round(started * 1000),
                "end_time": round(self._get_end(started) * 1000) if ended else None,
                "driver_node_id": "0" * 56,
            }
        )

    async def get_log(self, request: web.Request) -> web.Response:
        """GET /api/v0/logs/file: the trainer's last report, or the record of the run."""
        if request.query.get("filename", "").endswith(RECORD_SUFFIX):
            return web.Response(text=build_record())
        started = max(self.jobs[_get_address(request)].values())
        return web.Response(text=f"{PROGRESS_PREFIX}{self._build_report(started)}\n")

    async def get_progress(self, request: web.Request) -> web.Response:
        """GET /progress"""
        jobs = self.jobs.get(_get_address(request), {})
        if not jobs:
            return web.Response(status=503)
        return web.json_response(text=self._build_report(max(jobs.values())))

    async def list_heads(self, request: web.Request) -> web.Response:
        """GET /heads"""
        return web.json_response({address: max(jobs.values()) for address, jobs in self.jobs.items()})

    async def get_settings(self, request: web.Request) -> web.Response:
        """GET /settings"""
        return web.json_response(vars(self.settings))

    async def put_settings(self, request: web.Request) -> web.Response:
        """PUT /settings"""
        self.settings = Settings(**await request.json())
        return web.Response()

    def _now(self) -> float:
        return self.settings.paused_at or time.time()

    def _get_end(self, started: float) -> float:
        return started + self.settings.seconds_per_step * self.settings.total_steps

    def _is_ended(self, started: float) -> bool:
        return self._now() >= self._get_end(started)

    def _build_report(self, started: float) -> str:
        interval = self.settings.seconds_per_step
        total = self.settings.total_steps
        step = min(total, int((self._now() - started) / interval))
        report = ProgressReport(
            stage="finished" if step == total else "training",
            step=step,
            total_steps=total,
            seconds_per_step=interval,
            tokens_per_second=1234.0,
            metrics=ProgressMetrics(reward=step / total),
            updated=datetime.fromtimestamp(started + step * interval, UTC).isoformat(),
        )
        return report.model_dump_json(by_alias=True)


def _get_address(request: web.Request) -> str:
    """The address that the client has connected to."""
    assert request.transport
    address: str = request.transport.get_extra_info("sockname")[0]
    return address


async def serve(control_port: int) -> None:
    """Serve until cancelled."""
    heads = Heads()
    ports: dict[tuple[str, int], list[Any]] = {
        ("0.0.0.0", DASHBOARD_PORT): [
            web.post("/api/jobs/", heads.submit),
            web.get("/api/jobs/{id}", heads.get_job),
            web.get("/api/v0/logs/file", heads.get_log),
        ],
        ("0.0.0.0", METRICS_PORT): [web.get("/progress", heads.get_progress)],
        ("127.0.0.1", control_port): [
            web.get("/heads", heads.list_heads),
            web.get("/settings", heads.get_settings),
            web.put("/settings", heads.put_settings),
        ],
    }
    for (host, port), routes in ports.items():
        app = web.Application()
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
