"""Logs for the tests of the knowledge base."""

from __future__ import annotations

import io
import random
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from rlt_core.knowledge.diagnosis import LogFinding, diagnose_logs

FOLDER = Path(__file__).parent
SIGNATURES: dict[str, dict[str, str]] = tomllib.loads((FOLDER / "signatures.toml").read_text(encoding="utf-8"))
"""Code -> a line that shows the failure, a variant of it, and a similar line that does not show it."""
HEALTHY = (FOLDER / "healthy.txt").read_text(encoding="utf-8").splitlines()
"""Lines that runs without a failure print: Ray, vLLM, NCCL, verl and rlt's trainer."""


def diagnose(*texts: str | bytes) -> list[LogFinding]:
    """Diagnose one log for each text."""
    return diagnose_logs(io.BytesIO(text.encode() if isinstance(text, str) else text) for text in texts)


def list_codes(*texts: str | bytes) -> list[str]:
    return [finding.code for finding in diagnose(*texts)]


def write_healthy_log(size: int, seed: int = 0) -> bytes:
    """A log of at least `size` bytes: healthy lines in random order, with other numbers in each."""
    return b"".join(_generate_lines(size, random.Random(seed)))


def _generate_lines(size: int, random_numbers: random.Random) -> Iterator[bytes]:
    written = 0
    while written < size:
        line = random_numbers.choice(HEALTHY)
        line = re.sub(r"(?<=[.:=\d])\d(?=\d)", lambda _: str(random_numbers.randrange(10)), line)
        data = line.encode() + b"\n"
        written += len(data)
        yield data
