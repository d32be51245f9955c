"""The page over a folder of runs in a real browser, and the records of a run as the trainer's own writers make them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page

from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.spans import Span
from rlt_ui.directories import RunFolder
from rlt_ui.server import build_app

TOKEN = "a-token-of-the-test"
PAGE = "/a-path-of-the-test/"
HOSTILE = "<img src=x onerror=\"document.title='hostile'\">"
STEPS = 12


@contextmanager
def serve(folder: Path, port: int = 0) -> Iterator[str]:
    """Serve the page. Yields the URL with the token."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        app = build_app(RunFolder(folder), TOKEN, PAGE, lambda: uvicorn_server.should_exit)
        uvicorn_server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}{PAGE}?token={TOKEN}"
        finally:
            uvicorn_server.should_exit = True
            thread.join()


def write_step(run: RunDirectory, step: int) -> None:
    metrics = {
        **{"critic/rewards/mean": step / 16, "critic/rewards/min": 0.0, "critic/rewards/max": 1.0},
        **{"critic/rewards/p10": step / 16 - 0.25, "critic/rewards/p90": step / 16 + 0.25},
        **{"response_length/min": 1.0, "response_length/max": 400.0},
        **{"actor/entropy": 2.0 / step, "actor/kl_loss": 0.01 * step, "response_length/mean": 40.0 + step},
        **{"timing_s/gen": 1.5, "timing_s/update_actor": 0.5, "timing_s/step": 2.0, "perf/total_num_tokens": 512.0},
    }
    run.append_metrics(step, metrics)
    rollouts = [
        {
            "index": row // 2,
            "prompt": f"{row}+{step}=",
            "response": HOSTILE if row == 3 else str(row),
            "reward": row / 4,
            "by_token": {"texts": [HOSTILE, "b"], "advantages": [-0.5, 1.0], "mismatches": [0.25, None]},
            "sandbox": {
                "pod": HOSTILE,
                "programs": [{"command": HOSTILE, "exit_code": 1, "output": HOSTILE}],
                "num_programs": 1,
                "files": [{"path": HOSTILE, "size": 2}],
            },
            "segments": [{"text": HOSTILE, "learned": False, "side": True}, {"text": str(row), "learned": True}],
            **({"advantage": 4.5 - row, "tokens": 7, "finish_reason": "length"} if row else {}),
            **({"images": ["images/1f.png"], "failure": "environment: sandbox lost"} if row == 3 else {}),
        }
        for row in range(4)
    ]
    run.write_rollouts(step, rollouts)
    start = 2.0 * step
    phases = [(-1, "step", 0.0, 2.0), (-1, "gen", 0.0, 1.5), (0, "update_actor", 1.5, 2.0)]
    spans = [Span(rank, phase, start + begin, start + end, step) for rank, phase, begin, end in phases]
    run.append_spans([*spans, Span(1, "gen", start, start + 1.5, step, thread=10, engine=0)])


def open_page(browser: Browser, *, width: int = 1440, dark: bool = False) -> tuple[Page, list[str]]:
    """A page, and the list that gets its errors and its requests to other servers."""
    page = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    ).new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda sent: errors.append(sent.url) if not sent.url.startswith("http://127.0.0.1:") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    return page, errors


def assert_accessible(page: Page) -> None:
    """axe-core finds no violation of impact serious or critical, and nothing is wider than the window."""
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    found = Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious] == []
