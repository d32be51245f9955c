"""Failures without an entry: the exception that the others follow from, the last fatal line, a stall."""

from __future__ import annotations

import pytest
from knowledge.logs import SIGNATURES, diagnose, list_codes

from rlt_core.knowledge.scan import CHUNK

STEP = "(TaskRunner pid=7) step:4 - actor/kl_loss:0.1 - critic/score/mean:0.4"
TRACEBACK = """Traceback (most recent call last):
  File "/opt/app/train.py", line 31, in fit
    self.rollout(batch)
  File "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1750, in _call_impl
    return forward_call(*args)
FrobnicateError: the batch has 3 columns"""
FINAL = """ray.exceptions.RayTaskError(FrobnicateError): ray::TaskRunner.run() (pid=7, ip=10.0.0.1)
  File "/opt/app/train.py", line 31, in fit
FrobnicateError: the batch has 3 columns"""


def prefix(text: str, process: str) -> str:
    return "\n".join(f"({process}) {line}" for line in text.splitlines())


def test_the_exception_has_the_frame_of_the_programs_code_its_process_and_node() -> None:
    (finding,) = diagnose("start\n" + prefix(TRACEBACK, "WorkerDict pid=41, ip=10.0.0.3"))
    assert (finding.code, finding.line) == ("UnknownException", 7)
    assert finding.evidence == "FrobnicateError: the batch has 3 columns"
    assert finding.message.endswith("FrobnicateError in fit (/opt/app/train.py:31).")
    assert (finding.process, finding.node) == ("WorkerDict pid=41, ip=10.0.0.3", "10.0.0.3")


@pytest.mark.parametrize(
    "process",
    ["(VllmWorker rank=1 pid=9) ERROR 03-25 21:13:53 [core.py:374] ", "[rank3]: ", "node-2: [rank3]: ", "[trainer] ",
     "Aug 17 18:42:18 node-2 vllm[8052]: (APIServer pid=8052) ", "(ActorWorker(reference-0) pid=136) "],
)  # fmt: skip
def test_the_prefixes_of_any_launcher_do_not_hide_it(process: str) -> None:
    (finding,) = diagnose("\n".join(process + line for line in TRACEBACK.splitlines()))
    assert finding.evidence == "FrobnicateError: the batch has 3 columns"
    assert "fit (/opt/app/train.py:31)" in finding.message


def test_the_lines_of_several_processes_are_put_together() -> None:
    other = TRACEBACK.replace("Frobnicate", "Second").replace("train.py", "other.py")
    lines = zip(prefix(TRACEBACK, "A pid=1").splitlines(), prefix(other, "B pid=2").splitlines(), strict=True)
    first, *_ = diagnose("\n".join(line for pair in lines for line in pair))
    assert first.message.endswith("FrobnicateError in fit (/opt/app/train.py:31).")


def test_folded_lines_and_source_lines_without_indentation_are_read() -> None:
    lines = [line.strip() + " [repeated 3x across cluster]" for line in TRACEBACK.splitlines()]
    (finding,) = diagnose(prefix("\n".join(lines), "WorkerDict pid=41"))
    assert finding.evidence == "FrobnicateError: the batch has 3 columns"


def test_the_first_exception_of_a_chain_is_the_cause() -> None:
    second = (
        'Traceback (most recent call last):\n  File "/opt/app/main.py", line 3, in main\nRuntimeError: cannot train'
    )
    for link in (
        "The above exception was the direct cause of the following exception:",
        "During handling of the above exception, another exception occurred:",
    ):
        (finding,) = diagnose(f"{TRACEBACK}\n\n{link}\n\n{second}\n")
        assert finding.evidence.startswith("FrobnicateError")


def test_a_lookup_that_the_program_handles_is_not_the_cause() -> None:
    lookup = 'Traceback (most recent call last):\n  File "/opt/app/cache.py", line 3, in get\nKeyError: 42'
    link = "During handling of the above exception, another exception occurred:"
    (finding,) = diagnose(f"{lookup}\n\n{link}\n\n{TRACEBACK}\n")
    assert finding.evidence.startswith("FrobnicateError")


def test_an_exception_without_a_message_has_its_statement() -> None:
    (finding,) = diagnose(
        '  File "/opt/app/a.py", line 3, in f\n    assert world > 1\n           ^^^^^^\nAssertionError\n'
    )
    assert finding.evidence == "AssertionError assert world > 1"


def test_the_exception_in_a_message_of_hydra_is_found() -> None:
    (finding,) = diagnose(
        "Error in call to target 'app.Trainer':\nValueError('model.path must be set')\nfull_key: trainer"
    )
    assert finding.evidence == "ValueError('model.path must be set')"


def test_a_message_of_several_lines_is_joined() -> None:
    text = (
        "(S pid=2) FooValidationError: 2 validation errors for ServerConfig\n(S pid=2)   level: must be one of a, b\n"
    )
    (finding,) = diagnose(text)
    assert "level: must be one of a, b" in finding.evidence


def test_the_exception_that_ray_names_precedes_earlier_ones() -> None:
    noise = prefix(TRACEBACK.replace("Frobnicate", "Other"), "Tool pid=3")
    first, *_ = diagnose(f"{noise}\n{prefix(TRACEBACK, 'WorkerDict pid=41')}\n{FINAL}\n")
    assert (first.code, first.process) == ("UnknownException", "WorkerDict pid=41")
    assert first.evidence.startswith("FrobnicateError")


def test_it_follows_known_errors_and_precedes_effects_warnings_and_wrappers() -> None:
    known = "OSError: [Errno 28] No space left on device: '/a'"
    timeout = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE)"
    assert list_codes(f"{TRACEBACK}\n{known}") == ["DiskFull", "UnknownException"]
    assert list_codes(f"{TRACEBACK}\n{timeout}\n{FINAL}") == ["UnknownException", "CollectiveTimeout", "TaskFailed"]
    assert list_codes(f"{timeout}\n{TRACEBACK}\n{FINAL}") == ["CollectiveTimeout", "UnknownException", "TaskFailed"]
    assert list_codes(f"x: Connection refused\n{TRACEBACK}") == ["UnknownException", "ConnectionRefused"]


@pytest.mark.parametrize(
    "after",
    [STEP, "[finished] 3 steps done\nTraining finished", "{'loss': 0.1, 'grad_norm': 0.2}", "Job 'ray_1' succeeded",
     "Training Progress:  1%| | 1/9 [00:01<00:09, 1.0s/it]\nTraining Progress:  2%| | 2/9 [00:02<00:09, 1.0s/it]",
     'rlt-progress {"step": 3}', "(skyrl_entrypoint pid=1) Step 2/140: reward/avg_raw_reward 0.244"],
)  # fmt: skip
def test_an_exception_after_which_the_program_continues_is_not_found(after: str) -> None:
    for text in (TRACEBACK, "misc/x.cc:1 NCCL WARN something odd", prefix(TRACEBACK, "Tool pid=3")):
        assert list_codes(f"{text}\n{after}\n") == []
        assert list_codes(f"{text}\n{'x' * 99}\n" + f"{'y' * 99}\n" * (2 * CHUNK // 100) + after) == []


@pytest.mark.parametrize(
    "step",
    [
        "(RLVRPipeline pid=7) [2026-05-01 10:00:00] [rlvr_pipeline.py (600)] [INFO] pipeline step 12 finished",
        "{'system/step': 12, 'critic/score/mean': 0.4}",
        "2026-05-01 10:00:00 areal INFO: Epoch 1/10 Step 3/117 Train step 3/1170 done.",
        "2026-05-01 10:00:00 | INFO | skyrl_train.utils: Finished: 'step', time cost: 35.20s",
        "12:30:10    INFO trainer.py:80 | Step 3 | Time: 12.1s | Loss: 0.01 | Grad. Norm: 0.4",
        "(MegatronTrainRayActor pid=9) model.py:301 - step 41: {'train/loss': 0.11, 'train/grad_norm': 0.4}",
        "Episode [1/2]:  10%| | 5/50 [00:10<01:30, 2.0s/it]\nEpisode [1/2]:  12%| | 6/50 [00:12<01:28, 2.0s/it]",
        "  • Total step time: 51.91s",
        "global_step: 15, loss: 0.1",
        "iteration 20/100: loss=0.3",
    ],
)
def test_the_steps_of_each_framework_show_progress(step: str) -> None:
    assert list_codes(f"{TRACEBACK}\n{step}\n") == []
    assert list_codes(f"{step}\n{TRACEBACK}\n") == ["UnknownException"]


def test_a_failure_that_names_a_step_shows_no_progress() -> None:
    assert list_codes(f"{TRACEBACK}\nValueError: step 3: the reward is missing\n") == ["UnknownException"]
    assert list_codes("ValueError: step 3, grad of layer 0 is missing\n") == ["UnknownException"]


def test_a_progress_bar_that_is_printed_again_at_the_end_shows_none() -> None:
    bar = "(TaskRunner pid=7) Training Progress:  1%| | 1/9 [00:01<00:09, 1.0s/it]"
    assert list_codes(f"{bar}\n{TRACEBACK}\n{bar}\n") == ["UnknownException"]


@pytest.mark.parametrize(
    "before", ["WARNING: kernel is not available", "Exception ignored in: <function f>", "retrying after this error"]
)
def test_an_exception_that_its_logger_calls_harmless_is_not_found(before: str) -> None:
    assert list_codes(f"{before}\n{TRACEBACK}\nmore output\n") == []


def test_an_exception_of_the_process_that_removes_shared_memory_is_not_found() -> None:
    place = 'File "/usr/lib/python3.12/multiprocessing/resource_tracker.py", line 209, in main'
    text = f"Traceback (most recent call last):\n  {place}\n    cache[rtype].remove(name)\nKeyError: '/loky-2-df'\n"
    died = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
    assert list_codes(prefix(text, "Server pid=20")) == []
    assert list_codes(f"{text}{died}\n") == ["ActorDied"]


def test_a_process_that_continues_has_handled_its_exception() -> None:
    lines = [f"(Engine pid=3) INFO 11-22 18:00:0{second} [core.py:1] ready" for second in range(5)]
    log = prefix(TRACEBACK, "Engine pid=3") + "\n" + "x" * CHUNK + "\n" + "\n".join(lines) + "\n" + "y" * CHUNK
    assert list_codes(log) == []


def test_an_end_without_another_reason_recalls_what_was_before_the_last_step() -> None:
    died = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
    assert list_codes(f"{prefix(TRACEBACK, 'Tool pid=3')}\n{STEP}\n{died}\n") == ["UnknownException", "ActorDied"]


@pytest.mark.parametrize(
    "line",
    [
        "node-1:812:934 [0] transport/foo.cc:12 NCCL WARN Frobnication of peer 3 failed",
        "[ 812.1] NVRM: Xid (PCI:0000:5e:00): 31, pid=77, name=python3, Ch 00000010",
        "Sep 01 10:00:00 node-1 kernel: python3[77]: segfault at 0 ip 00007f sp 00007f error 4 in libfoo.so",
        "srun: error: Requested frobnication is not supported",
        "slurmstepd: error: couldn't frobnicate the step",
        "docker: Error response from daemon: frobnication failed.",
        "4m    Warning   FrobnicationFailed   workload/grpo   couldn't frobnicate",
        "  Warning  FrobnicationFailed  15m (x19 over 37m)  frobnicator  Failed frobnication of grpo",
        "Assertion failed: /opt/frobnicate/internode.cu:483, condition: channels >= 2",
        "frobnicate: main.c:12: main: Assertion `channels > 1' failed.",
        "Failed: Cuda error /opt/frobnicate.cuh:164 'invalid argument'",
        "E0130 09:00:00.123456    1123 frobnicate.go:12] cannot frobnicate pod",
        "frobnicate.py: error: the option is wrong",
        "FATAL:   container frobnication failed",
    ],
)
def test_the_last_fatal_line_of_another_program_is_found(line: str) -> None:
    finding, wrapper = diagnose(
        f"start\nerror: an earlier one\n{line}\nsrun: error: node-1: task 0: Exited with exit code 1\n"
    )
    assert (finding.code, finding.line, wrapper.code) == ("UnknownFatalLine", 3, "LauncherReport")
    assert "robnicat" in finding.evidence or "Xid" in finding.evidence or "segfault" in finding.evidence


def test_a_line_that_repeats_with_a_remainder_is_a_stall() -> None:
    line = "2026-01-30 09:00:0{}: (Pool pid=3) buffer has 63 of 64 samples, waiting"
    (finding,) = diagnose("start\n" + "\n".join(line.format(second) for second in range(3)) + "\n")
    assert (finding.code, finding.line) == ("RepeatedLastLine", 4)
    assert "63 of 64" in finding.evidence


def test_a_line_that_tries_again_is_a_stall() -> None:
    line = "2026-01-30 09:00:0{} - INFO - client - The server is not up yet. Retrying in 2.0 seconds..."
    (finding,) = diagnose("start\n" + "\n".join(line.format(second) for second in range(3)) + "\n")
    assert (finding.code, finding.line) == ("RepeatedLastLine", 4)
    assert list_codes("\n".join(line.format(second) for second in range(3)) + "\nconnected\n") == []


@pytest.mark.parametrize(
    "lines",
    [
        ["buffer has 63 of 64 samples, waiting"] * 2,
        ["buffer has 64 of 64 samples, waiting"] * 3,
        [f"buffer has {count} of 64 samples, waiting" for count in range(3)],
        ["buffer has 63 of 64 samples, waiting"] * 3 + ["go"],
    ],
)
def test_a_wait_that_ends_or_moves_is_not_a_stall(lines: list[str]) -> None:
    assert list_codes("\n".join(lines)) == []


@pytest.mark.parametrize(
    "code", ["GpuOutOfMemory", "ModuleMissing", "PermissionDenied", "ActorDied", "CollectiveTimeout"]
)
def test_a_known_error_after_which_the_program_completes_a_step_is_not_found(code: str) -> None:
    line = SIGNATURES[code]["positive"]
    assert list_codes(f"{line}\n{STEP}\n") == []
    assert list_codes(f"{line}\n" + f"{'y' * 99}\n" * (2 * CHUNK // 100) + STEP) == []
    assert list_codes(f"{line}\n{STEP}\n{line}\n") == [code]
    assert diagnose(f"{line}\n{STEP}\n{line}\n")[0].line == 3


def test_what_was_before_a_step_explains_an_end_without_another_reason() -> None:
    memory = SIGNATURES["GpuOutOfMemory"]["positive"]
    died = SIGNATURES["ActorDied"]["positive"]
    disk = SIGNATURES["DiskFull"]["positive"]
    ecc = SIGNATURES["GpuMemoryUncorrectable"]["positive"]
    assert list_codes(f"{memory}\n{STEP}\n{died}\n") == ["GpuOutOfMemory", "ActorDied"]
    assert list_codes(f"{memory}\n{STEP}\n{disk}\n") == ["DiskFull"]
    assert list_codes(f"{ecc}\n{STEP}\n{disk}\n") == ["GpuMemoryUncorrectable", "DiskFull"]


def test_values_that_are_not_finite_count_although_the_program_continues() -> None:
    assert list_codes(f"loss is nan\n{STEP}\n") == ["LossNotFinite"]


def test_a_wrapper_alone_names_the_process_that_has_the_cause() -> None:
    line = "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker ID: 5 "
    line += "Node ID: 7 Worker IP address: 10.0.0.9 Worker port: 10015 Worker PID: 153 Worker exit type: SYSTEM_ERROR"
    (finding,) = diagnose(line)
    assert (finding.code, finding.severity, finding.node) == ("WorkerDied", "wrapper", "10.0.0.9")
    assert finding.message.endswith("It is about process 153 on 10.0.0.9: its log has the cause.")
