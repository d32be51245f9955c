"""What level full adds for verl, OpenRLHF and other programs: the engine, and one step with the memory that it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlt_pod.preflight.facts.memory import MemoryWatch, check_peaks
from rlt_pod.preflight.members import NoAnswer, call, end_members, start_member
from rlt_pod.preflight.process import Process
from rlt_pod.preflight.result import Result, warned
from rlt_pod.preflight.trial.engine import ENGINE_TIMEOUT_S, Answer, check_answer
from rlt_pod.preflight.trial.framework_trial import run_framework_trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlt_pod.preflight.expected import Engine, Expected, Trial
    from rlt_pod.preflight.members import RayNode

ANSWER_TIMEOUT_S = 60.0


def check_engine(engine: Engine, expected: Expected, nodes: Sequence[RayNode], directory: str, process: str) -> Result:
    """Generate a line with the engine, on the accelerators of one pod, which must be free."""
    size = engine.tensor_parallel_size
    node = next((each for each in nodes if each.devices >= size), nodes[0])
    member = start_member(node, expected, directory, process, devices=min(size, node.devices))
    (answer,) = call([member], ENGINE_TIMEOUT_S + ANSWER_TIMEOUT_S, Process.ask_engine)
    end_members([member])
    if isinstance(answer, NoAnswer):
        answer = Answer(node.pod, error=answer.reason)
    for line in answer.last_lines:
        print(line)
    return check_answer(engine, answer)


def run_training(
    trial: Trial, expected: Expected, nodes: Sequence[RayNode], directory: str, process: str
) -> list[Result]:
    """Run the stage training, and watch the memory of all pods meanwhile."""
    own = MemoryWatch()
    watches = [start_member(node, expected, directory, process) for node in nodes]
    call(watches, ANSWER_TIMEOUT_S, Process.watch_memory)
    results = run_framework_trial(trial)
    peaks = call(watches, ANSWER_TIMEOUT_S, Process.read_memory)
    end_members(watches)
    return [*results, *check_peaks([own.end("the head"), *(each for each in peaks if not isinstance(each, NoAnswer))])]


def list_not_possible(expected: Expected, stage: str) -> list[Result]:
    """One warning for each check of the stage that this job cannot have."""
    return [
        warned(each.name, None, f"Not possible: {each.reason}", each.remedy)
        for each in expected.not_possible
        if each.stage == stage
    ]
