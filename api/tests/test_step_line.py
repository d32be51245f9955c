"""The console line is verl's, to the letter, and is read back from the logs that frameworks write."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlt_pod.report.step_line import parse_step_line, step_line


def test_line_has_verls_format() -> None:
    metrics = {"critic/rewards/mean": 0.5, "actor/lr": 1e-06, "training/global_step": 3}
    assert step_line(3, metrics) == "step:3 - critic/rewards/mean:0.5 - actor/lr:1e-06 - training/global_step:3"


KEYS = st.text("abcdefghijklmnopqrstuvwxyz_/@0123456789", min_size=1)


@given(st.integers(0, 10**9), st.dictionaries(KEYS, st.floats(allow_nan=False), min_size=1))
def test_line_is_parsed_back(step: int, metrics: dict[str, float]) -> None:
    assert parse_step_line(step_line(step, metrics)) == (step, metrics)


@pytest.mark.parametrize(
    "line",
    [
        "step:7 - a/b:0.25 - c:-1e-06",
        "step:7 - a/b:0.25 - c:-1e-06\r\n",
        "(TaskRunner pid=4321) step:7 - a/b:0.25 - c:-1e-06",
        "\x1b[36m(TaskRunner pid=4321, ip=10.0.0.1)\x1b[0m step:7 - a/b:0.25 - c:-1e-06",
        "Training Progress:  10%|#         | 1/10 [00:05<00:45,  5.0s/it]step:7 - a/b:0.25 - c:-1e-06",
        "step:7 - a/b:np.float64(0.25) - c:np.float32(-1e-06)",
        "step:7 - a/b:0.25 - name:text - c:-1e-06",
    ],
)
def test_prefixes_of_logs_are_accepted(line: str) -> None:
    assert parse_step_line(line) == (7, {"a/b": 0.25, "c": -1e-06})


def test_keys_may_contain_colons_and_values_may_be_infinite_or_nan() -> None:
    parsed = parse_step_line("step:1 - val-core/a:b/acc/mean@1:inf - x:nan")
    assert parsed is not None
    assert parsed[1]["val-core/a:b/acc/mean@1"] == math.inf
    assert math.isnan(parsed[1]["x"])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step:1",
        "step:1 - ",
        "step: 1 - a:1",
        "step:one - a:1",
        "global_step:1 - a:1",
        "step:1 - note",
        "a:1 - step:1",
    ],
)
def test_other_lines_are_ignored(line: str) -> None:
    assert parse_step_line(line) is None
