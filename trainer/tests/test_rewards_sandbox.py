"""A function that misbehaves is killed on timeout, sees none of the trainer's secrets, and the next call works."""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from process_end import await_end

from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rewards.sandbox import Sandbox

BEHAVIORS = """
    import os, re, signal, subprocess, sys, time

    def score(what, value=1.0):
        print("noise on standard output", what)
        if what == "return": return value
        if what == "nan": return float("nan")
        if what == "raise": raise RuntimeError("no such luck")
        if what == "exit": sys.exit(3)
        if what == "hang": time.sleep(3600)
        if what == "regex": return float(bool(re.fullmatch("(a+)+b", "a" * 64)))
        if what == "die": os.kill(os.getpid(), signal.SIGKILL)
        if what == "eat": return float(len(bytearray(8 * 2**30)))
        if what == "secret": return float("RLT_SECRET" in os.environ)
        if what == "pid": return float(os.getpid())
        if what == "spawn": return float(subprocess.Popen(["sleep", "3600"], stdout=subprocess.DEVNULL).pid)
        if what == "array":
            import numpy
            return numpy.float32(0.5)
"""

MakeSandbox = Callable[..., Sandbox]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[MakeSandbox]:
    """A sandbox of one process around BEHAVIORS, or around other source."""
    made: list[Sandbox] = []

    def make(source: str = BEHAVIORS, *, timeout_s: float = 20.0, processes: int = 1) -> Sandbox:
        (tmp_path / "behaviors.py").write_text(textwrap.dedent(source))
        made.append(Sandbox("behaviors:score", timeout_s=timeout_s, processes=processes, path=[str(tmp_path)]))
        return made[-1]

    yield make
    for each in made:
        each.close()


def call(sandbox: Sandbox, calls: Sequence[Mapping[str, Any]]) -> list[Outcome]:
    """Return the outcomes of calls that start at the same time."""

    async def gather() -> list[Outcome]:
        outcomes: list[Outcome] = await asyncio.gather(*(sandbox.call(arguments) for arguments in calls))
        return outcomes

    return asyncio.run(gather())


@pytest.mark.parametrize(
    ("value", "score"), [(1, 1.0), (0.25, 0.25), (True, 1.0), (-3, -3.0), ({"score": 0.5, "acc": 1}, 0.5)]
)
def test_numbers_and_dictionaries_with_a_score_are_scores(sandbox: MakeSandbox, value: object, score: float) -> None:
    assert call(sandbox(), [{"what": "return", "value": value}]) == [score]


@pytest.mark.parametrize(
    ("arguments", "reason", "message"),
    [
        ({"what": "return", "value": None}, "none", "returned None"),
        ({"what": "return", "value": {"acc": 1}}, "none", 'without "score"'),
        ({"what": "return", "value": "1"}, "not_a_number", "returned str"),
        ({"what": "return", "value": [1]}, "not_a_number", "returned list"),
        ({"what": "return", "value": 1e999}, "not_finite", "returned inf"),
        ({"what": "nan"}, "not_finite", "returned nan"),
        ({"what": "raise"}, "raised", "RuntimeError: no such luck"),
        ({"what": "exit"}, "raised", "SystemExit: 3"),
        ({"what": "eat"}, "raised", "MemoryError"),
        ({"what": "die"}, "crashed", "exited with code -9"),
        ({"unknown": 1}, "raised", "TypeError"),
    ],
)
def test_each_failure_has_its_reason(
    sandbox: MakeSandbox, arguments: dict[str, Any], reason: str, message: str
) -> None:
    (failure,) = call(sandbox(), [arguments])
    assert isinstance(failure, Failure)
    assert failure.reason == reason
    assert message in failure.message


@pytest.mark.parametrize("what", ["hang", "regex"])
def test_a_call_that_hangs_is_killed_and_the_next_one_works(sandbox: MakeSandbox, what: str) -> None:
    start = time.monotonic()
    hanging, good = call(sandbox(timeout_s=3), [{"what": what}, {"what": "return"}])
    assert isinstance(hanging, Failure)
    assert (hanging.reason, good) == ("timed_out", 1.0)
    assert time.monotonic() - start < 60  # the function itself takes an hour


def test_outcomes_keep_the_order_of_the_calls(sandbox: MakeSandbox) -> None:
    calls = [{"what": "die"} if i == 5 else {"what": "return", "value": i} for i in range(12)]
    outcomes = call(sandbox(processes=2), calls)
    assert [o for o in outcomes if not isinstance(o, Failure)] == [i for i in range(12) if i != 5]
    assert isinstance(outcomes[5], Failure)


def test_processes_are_reused_between_calls(sandbox: MakeSandbox) -> None:
    one = sandbox()
    assert call(one, [{"what": "pid"}]) == call(one, [{"what": "pid"}])


def test_variables_of_the_function_are_passed_on(tmp_path: Path) -> None:
    (tmp_path / "behaviors.py").write_text(textwrap.dedent(BEHAVIORS))
    variables = {"RLT_SECRET": "s3cret"}
    one = Sandbox("behaviors:score", timeout_s=20, processes=1, path=[str(tmp_path)], variables=variables)
    assert call(one, [{"what": "secret"}]) == [1.0]
    one.close()


def test_secrets_of_the_environment_are_not_passed_on(sandbox: MakeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLT_SECRET", "s3cret")
    assert call(sandbox(), [{"what": "secret"}]) == [0.0]


def test_child_processes_of_a_function_are_killed_with_it(sandbox: MakeSandbox) -> None:
    one = sandbox()
    (child,) = call(one, [{"what": "spawn"}])
    assert isinstance(child, float)
    one.close()
    await_end(int(child))


def test_numpy_numbers_are_scores(sandbox: MakeSandbox) -> None:
    assert call(sandbox(), [{"what": "array"}]) == [0.5]


def test_ten_megabytes_and_lone_surrogates_reach_the_function(sandbox: MakeSandbox) -> None:
    one = sandbox("def score(text): return len(text)")
    assert call(one, [{"text": "🎉" * 2_500_000}, {"text": "\ud800\x00\n"}]) == [2_500_000.0, 3.0]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def other(): pass", "has no attribute 'score'"),
        ("score = 3", "score is not a function"),
        ("def score(:", "SyntaxError"),
        ("raise SystemExit('stop')", "SystemExit: stop"),
    ],
)
def test_a_module_that_does_not_load_is_rejected_before_the_training(
    sandbox: MakeSandbox, source: str, message: str
) -> None:
    with pytest.raises(ValueError, match=f"could not be loaded: .*{message}"):
        sandbox(source).load()
