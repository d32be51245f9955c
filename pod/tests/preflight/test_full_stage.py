"""The parts of level full that run in the pods: the engine's answer, the step of another framework, and the memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from process_end import await_end

from rlt_pod.device_memory import Use, parse_nvidia_smi
from rlt_pod.preflight.expected import Engine, Trial
from rlt_pod.preflight.facts.memory import Peak, check_peaks, parse_cgroup
from rlt_pod.preflight.trial.child import run_child
from rlt_pod.preflight.trial.engine import Answer, ask_engine, check_answer, find_error
from rlt_pod.preflight.trial.framework_trial import run_framework_trial

ENGINE = Engine("vllm", "/models/q", 2, {})
GIB = 2**30
STEP = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["RLT_PREFLIGHT_DIRECTORY"])
saved = folder / "checkpoint"
step = int(saved.read_text()) + 1 if saved.exists() and "resume" in sys.argv else 1
print(f"(TaskRunner pid=7) step:{step} - actor/kl_loss:0.1 - critic/rewards/mean:0.5")
if "save" in sys.argv:
    saved.write_text(str(step))
if "fail" in sys.argv:
    raise ValueError("The dataset is empty")
"""
"""A program that counts its steps, saves, resumes or fails, as its arguments state."""


def make_trial(tmp_path: Path, first: str, second: str | None = None, *, prints_steps: bool = True) -> Trial:
    program = [sys.executable, "-c", STEP]
    resume = None if second is None else [*program, *second.split()]
    return Trial([*program, *first.split()], resume, str(tmp_path / "trial"), str(tmp_path), prints_steps=prints_steps)


def run(trial: Trial, timeout_s: float = 60.0) -> dict[str, tuple[str, str]]:
    """Check -> result and message. The folder is removed."""
    results = run_framework_trial(trial, timeout_s)
    assert not Path(trial.directory).exists()
    return {each.name: (each.result, each.message) for each in results}


def test_a_step_is_made_saved_and_resumed_from(tmp_path: Path) -> None:
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial/checkpoint").write_text("7")  # of a preflight that was killed
    found = run(make_trial(tmp_path, "save", "resume"))
    assert [result for result, _ in found.values()] == ["passed", "passed"]
    assert "made step 2" in found["checkpoint"][1]


def test_a_step_that_fails_is_named_with_its_error(tmp_path: Path) -> None:
    found = run(make_trial(tmp_path, "fail", "resume"))
    assert found == {"training-step": ("failed", "The program exited with code 1: ValueError: The dataset is empty")}


def test_a_program_without_a_step_has_not_trained(tmp_path: Path) -> None:
    found = run(Trial(["true"], [], str(tmp_path / "trial")))
    assert found["training-step"][0] == "failed"
    assert "printed no line of step 1" in found["training-step"][1]


def test_a_checkpoint_that_is_not_saved_or_not_read_fails(tmp_path: Path) -> None:
    assert run(make_trial(tmp_path, "", "resume"))["checkpoint"][0] == "failed"
    result, message = run(make_trial(tmp_path, "save", ""))["checkpoint"]
    assert (result, "printed no line of step 2" in message) == ("failed", True)


def test_a_program_of_the_user_passes_with_its_exit_code(tmp_path: Path) -> None:
    found = run(Trial(["true"], None, str(tmp_path / "trial"), prints_steps=False))
    assert found.keys() == {"training-step"}
    assert found["training-step"][0] == "passed"
    with_files = run(make_trial(tmp_path, "save", prints_steps=False))
    assert "were not read back" in with_files["checkpoint"][1]
    missing = run(Trial(["/nowhere/train"], None, str(tmp_path / "trial"), prints_steps=False))
    assert "The program cannot start: " in missing["training-step"][1]


def test_a_step_that_hangs_ends_at_the_timeout(tmp_path: Path) -> None:
    found = run(Trial(["sleep", "600"], None, str(tmp_path / "trial")), timeout_s=0.2)
    assert "did not end within 0 s" in found["training-step"][1]


def test_processes_that_a_child_leaves_are_ended_with_it() -> None:
    ended = run_child(["bash", "-c", "sleep 600 & echo $!"], 60.0, lines=3, own_session=True)
    (pid,) = ended.last_lines
    assert ended.code == 0, "the process that it leaves does not delay its end"
    await_end(int(pid))


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (
            (
                "(EngineCore pid=7) ERROR 11-22 18:52 [core.py:9] ValueError: To serve at least one request …",
                "RuntimeError: Engine core initialization failed. See root cause above.",
            ),
            "ValueError: To serve at least one request …",
        ),
        (("torch.OutOfMemoryError: CUDA out of memory.",), "OutOfMemoryError: CUDA out of memory."),
        (("RuntimeError: Engine core initialization failed.",), "RuntimeError: Engine core initialization failed."),
        (
            (
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
                "Value error, Model architectures ['A'] are not supported. [type=value_error, input_value=A()]",
            ),
            "ValueError: Model architectures ['A'] are not supported.",
        ),
        (("loading", "done"), None),
    ],
)
def test_the_error_of_the_engine_is_the_cause_and_not_its_wrapper(lines: tuple[str, ...], error: str | None) -> None:
    assert find_error(lines) == error


def test_an_engine_that_the_image_does_not_contain_is_named() -> None:
    """SGLang is not installed here."""
    engine = Engine("sglang", "/models/q", 1, {})
    result = check_answer(engine, ask_engine(engine, "pod-a", str(Path(__file__).parents[2])))
    assert (result.result, result.pods) == ("failed", ("pod-a",))
    assert "sglang with /models/q (tensor parallel size 1) does not start: ModuleNotFoundError" in result.message


def test_an_engine_that_generates_nothing_fails() -> None:
    assert check_answer(ENGINE, Answer("a", 3.0, 0, "")).result == "failed"
    passed = check_answer(ENGINE, Answer("a", 3.0, 2, " 2"))
    assert (passed.result, passed.value, passed.threshold) == ("passed", "3.0 s", "1800 s")


def test_the_memory_of_gpus_is_read_from_nvidia_smi() -> None:
    assert parse_nvidia_smi("1024, 81920\n[N/A], [N/A]\n") == [Use(GIB, 80 * GIB)]
    assert parse_nvidia_smi("NVIDIA-SMI has failed") == []


def test_the_memory_of_a_container_excludes_what_the_kernel_can_drop() -> None:
    statistics = "anon 300\nfile 5000\nshmem 20\n"
    assert parse_cgroup(statistics, "1000\n", ("anon", "shmem")) == Use(320, 1000)
    assert parse_cgroup(statistics, "max\n", ("anon", "shmem")) is None
    assert parse_cgroup(statistics, str(2**63 - 4096), ("anon", "shmem")) is None


def test_a_pod_that_uses_nearly_all_memory_is_named() -> None:
    peaks = [Peak("a", Use(40 * GIB, 80 * GIB), Use(4, 10)), Peak("b", Use(79 * GIB, 80 * GIB), None)]
    devices, host = check_peaks(peaks)
    assert (devices.name, devices.result, devices.pods, devices.value) == ("peak-memory", "warned", ("b",), "79.0Gi")
    assert (host.name, host.result) == ("peak-host-memory", "passed")
    assert check_peaks([Peak("a")]) == []
