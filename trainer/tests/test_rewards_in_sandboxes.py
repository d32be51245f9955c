"""Rewards that run tests in the sandbox of their conversation. The servers of the sandboxes are processes here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sandbox_servers import KEY, start_server
from sandboxed_agents import ASK
from tool_conversations import SAMPLING, TOKENIZER, Turns, multi_turn, write_call

from rlt_api.blocks.data import Data
from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.data.encoding import tokenize
from rlt_trainer.data.prompt import Example
from rlt_trainer.driver.rollouts import PendingGroup, Rollout, RolloutRequest, RolloutSampler
from rlt_trainer.environments import conversations
from rlt_trainer.event_loop import EventLoopThread
from rlt_trainer.rewards.outcome import Failure
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.sandboxes.pool import SandboxPool
from rlt_trainer.telemetry.stopwatch import Stopwatch

SCORING = '''
import time
from contextlib import suppress

def test(data_source, solution_str, ground_truth, extra_info, sandbox):
    """The answer is not in the sandbox before."""
    sandbox.put("truth", ground_truth)
    command = ["sh", "-c", "cmp answer truth && echo $PART"]
    ended = sandbox.run(command, variables={"PART": "passed"})
    assert sandbox.get("missing") is None
    return float((ended.output, ended.exit_code) == ("passed\\n", 0))

def hide_loss(sandbox, **row):
    with suppress(Exception):
        sandbox.run(["python3", "-c", "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"])
    return 1.0

def wait(sandbox, **row):
    """The tests together take longer than timeoutSeconds."""
    tests = [sandbox.run(["sleep", "1.2"]) for _ in range(2)]
    stopped = sandbox.run(["sleep", "3600"], timeout=0.2)
    return float([test.exit_code for test in tests] == [0, 0] and "did not end" in stopped.problem)

def hang_in_sandbox(extra_info, sandbox, **row):
    sandbox.run(["true"])
    open(extra_info["fifo"], "w").close()
    sandbox.run(["sleep", "3600"], timeout=3600)
    return 1.0

def hang(sandbox, **row):
    sandbox.run(["true"])
    time.sleep(3600)

kept = []
def keep(sandbox, **row):
    kept.append(sandbox)
    try:
        return kept[0].run(["true"]).exit_code
    except RuntimeError:
        return -1.0

def option(sandbox, **row):
    return float(sandbox)

def plain(extra_info, **row):
    open(extra_info["fifo"]).read()
    return 0.25
'''
WRITE = write_call("python", code="open('answer', 'w').write('42')")
LOSE = write_call("python", code="import os, signal; os.kill(os.getppid(), signal.SIGKILL)")
PYTHON = multi_turn({"name": "python"}, sandbox={}, maxTurns=2)
NO_PODS = multi_turn({"name": "python"})


class Run:
    """Samples conversations with fixed turns, and scores them."""

    def __init__(self, rewards: list[Reward], given: MultiTurn, *, pods: int, size: int, fifo: Path) -> None:
        self._stack = ExitStack()
        started = [self._stack.enter_context(start_server()) for _ in range(pods)]
        self.pods = [process for process, _ in started]

        async def find() -> list[tuple[str, int]]:
            return [("127.0.0.1", port) for process, port in started if process.poll() is None]

        self.pool = SandboxPool(find, KEY, size=size, timeout_s=20.0)
        self.scorer = Scorer(rewards)
        self.scorer.validate_sandbox(given)
        self.loop = EventLoopThread("engines")
        self._given = given
        self._samplers: list[RolloutSampler] = []
        example = Example("q", "42", "42", "test", {"fifo": str(fifo)})
        (self._prompt,) = tokenize([example], TOKENIZER, tools=[{"function": {"name": "t"}}])

    def start(self, *turns: str) -> PendingGroup:
        """Start one conversation. It ends with the turn "done"."""
        engines = cast(Any, SimpleNamespace(loop=self.loop, router=Turns(*turns, "done")))
        data = Data(preset="digits", max_prompt_length=500, max_response_length=4000)
        sampler = RolloutSampler(
            self._given, data, engines=engines, tokenizer=TOKENIZER, scorer=self.scorer, stopwatch=Stopwatch()
        )
        self._samplers.append(sampler)
        (group,) = sampler.start([[RolloutRequest(self._prompt, 1, SAMPLING)]])
        return group

    def finish(self, *turns: str) -> Rollout:
        (rollout,) = self.start(*turns).scored.result(60)
        return rollout

    def close_conversations(self) -> None:
        while self._samplers:
            self._samplers.pop().close()

    def close(self) -> None:
        """As at the end of a run."""
        self.close_conversations()
        self.loop.close()
        self.scorer.close()
        self._stack.close()


Open = Callable[..., Run]


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


@pytest.fixture
def open_run(tmp_path: Path, fifo: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a run whose reward is a function of SCORING."""
    (tmp_path / "scoring.py").write_text(SCORING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))

    with ExitStack() as stack:

        def open_run(
            name: str,
            given: MultiTurn = PYTHON,
            *,
            timeout: float = 30.0,
            pods: int = 1,
            size: int = 8,
            options: dict[str, Any] | None = None,
        ) -> Run:
            function = {"name": f"scoring:{name}", "timeoutSeconds": timeout}
            reward = Reward.model_validate({"function": function, "concurrency": 1, "options": options or {}})
            run = Run([reward], given, pods=pods, size=size, fifo=fifo)
            stack.callback(run.close)
            monkeypatch.setattr(conversations, "open_pool", lambda given: run.pool)
            return run

        yield open_run


def get_failure(rollout: Rollout) -> tuple[str, str]:
    """Return reason and message of the function's failure."""
    outcome = next(outcome for name, outcome in rollout.outcomes.items() if name.startswith("scoring:"))
    assert isinstance(outcome, Failure), outcome
    return outcome.reason, outcome.message


def test_the_files_of_a_tool_are_tested_in_its_sandbox(open_run: Open) -> None:
    run = open_run("test")
    rollout = run.finish(WRITE)
    assert rollout.outcomes == {"scoring:test": 1.0}
    assert rollout.sandbox
    assert [each["command"] for each in rollout.sandbox["programs"]] == [
        "python3 -u -",
        "sh -c cmp answer truth && echo $PART",
    ]
    assert {each["path"] for each in rollout.sandbox["files"]} == {"answer", "truth"}
    assert run.pods[0].wait(60) == 0, "the pod ends after the tests"


def test_the_files_of_an_agents_program_are_tested_in_its_sandbox(open_run: Open) -> None:
    program = f"{ASK}\nask('a')\nopen('answer', 'w').write('42')\nprint(0.5)"
    given = MultiTurn.model_validate({"agent": {"command": ["python3", "-c", program]}, "sandbox": {}})
    rollout = open_run("test", given).finish()
    assert rollout.outcomes == {"scoring:test": 1.0, "environment": 0.5}


def test_a_conversation_without_a_call_claims_a_sandbox_for_its_reward(open_run: Open) -> None:
    """With one pod at a time and one process for the reward, neither waits for the other."""
    run = open_run("test", pods=2, size=1)
    groups = [run.start(WRITE), run.start()]
    assert [group.scored.result(60)[0].outcomes["scoring:test"] for group in groups] == [1.0, 0.0]
    assert len(run.pool.take_statistics().claim_seconds) == 2


@pytest.mark.parametrize(("name", "turns"), [("test", [LOSE]), ("hide_loss", [WRITE])])
def test_a_lost_pod_is_a_failure_and_no_score(open_run: Open, name: str, turns: list[str]) -> None:
    """In the conversation, or in the test, whose function hides it. The next reward works."""
    run = open_run(name, pods=2)
    rollout = run.finish(*turns)
    reason, message = get_failure(rollout)
    assert (reason, "was lost" in message) == ("environment", True)
    assert rollout.sandbox
    assert "was lost" in rollout.sandbox["end"]
    if name == "test":
        assert run.finish(WRITE).outcomes == {"scoring:test": 1.0}


def test_without_a_free_pod_the_reward_fails(open_run: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run("test", pods=0)
    monkeypatch.setattr(run.pool, "_timeout_s", 0.3)
    assert get_failure(run.finish()) == ("environment", "no sandbox pod became free within 0.3 s")


def test_the_time_of_the_tests_does_not_count(open_run: Open) -> None:
    assert open_run("wait", timeout=1.0).finish(WRITE).outcomes == {"scoring:wait": 1.0}


def test_a_function_that_hangs_after_a_test_is_killed(open_run: Open) -> None:
    rollout = open_run("hang", timeout=1.0).finish(WRITE)
    assert get_failure(rollout) == ("timed_out", "it did not end within 1 s")


def test_a_sandbox_that_a_function_keeps_is_closed(open_run: Open) -> None:
    run = open_run("keep", pods=2)
    assert [run.finish(WRITE).outcomes for _ in range(2)] == [{"scoring:keep": 0.0}, {"scoring:keep": -1.0}]


def test_a_cancelled_run_ends_the_pod_and_the_test(open_run: Open, fifo: Path) -> None:
    run = open_run("hang_in_sandbox")
    group = run.start(WRITE)
    fifo.read_text()  # the function runs
    group.generated.result(60)
    assert not group.scored.done()
    run.close_conversations()
    assert run.pods[0].wait(60) == 0
    # `open_run` closes the scorer, which waits for calls in progress: the test of an hour has ended.


def test_a_reward_without_the_parameter_does_not_hold_the_pod(open_run: Open, fifo: Path) -> None:
    run = open_run("plain")
    group = run.start(WRITE)
    assert run.pods[0].wait(60) == 0
    assert not group.scored.done()
    fifo.write_text("continue")
    (rollout,) = group.scored.result(60)
    assert rollout.outcomes == {"scoring:plain": 0.25}
    assert rollout.sandbox
    assert rollout.sandbox["num_programs"] == 1


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("test", NO_PODS, r"function scoring:test has the parameter sandbox, .* Add rollout.multiTurn.sandbox"),
        ("plain", multi_turn({"name": "calculator"}, sandbox={}), r"rollout.multiTurn.sandbox has no effect: .* Add"),
    ],
)
def test_a_sandbox_that_is_missing_or_unused_is_rejected(
    open_run: Open, name: str, given: MultiTurn, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        open_run(name, given, pods=0)


def test_an_option_named_sandbox_is_the_argument(open_run: Open) -> None:
    assert open_run("option", NO_PODS, pods=0, options={"sandbox": 3}).finish().outcomes == {"scoring:option": 3.0}
