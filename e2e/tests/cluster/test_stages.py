import json
import sys
from pathlib import Path

import pytest

from rlt_e2e.cluster.stages import StageError, exit_with_message, format_failure, format_progress, stage


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_progress_line_has_elapsed_time_estimate_and_note() -> None:
    assert format_progress("build", 65.2, 430, "812 packages") == "build  1:05 of about 7:10  (812 packages)"
    assert format_progress("build", 65.2, 42, "") == "build  1:05, longer than the usual 42 s"
    assert format_progress("build", 5, None, "") == "build  5 s"
    assert format_progress("build", 5, None, "package " * 100).endswith(" pac…)")


def test_stage_prints_its_start_and_end_without_color(capsys: pytest.CaptureFixture[str]) -> None:
    with stage("clean up"):
        pass
    out = capsys.readouterr().out
    assert out.startswith("==> clean up\nok  clean up  0.")
    assert "\033" not in out


def test_duration_of_a_finished_stage_is_the_next_estimate(tmp_path: Path) -> None:
    with stage("clean up"):
        pass
    assert json.loads((tmp_path / "rlt" / "durations.json").read_text())["clean up"] >= 0
    with stage("clean up", estimate_s=99) as this:
        assert this.estimate_s is not None
        assert this.estimate_s < 99


def test_duration_of_a_failed_stage_is_not_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="the reason"), stage("build"):
        raise ValueError("the reason")
    assert "FAILED  build" in capsys.readouterr().out
    assert not (tmp_path / "rlt" / "durations.json").exists()


def test_run_logs_output_and_passes_each_line_to_the_callback(tmp_path: Path) -> None:
    log = tmp_path / "log"
    seen = list[str]()
    with stage("print") as this:
        this.run([sys.executable, "-c", "print('one'); print('two')"], log=log, on_line=seen.append)
    assert seen == ["one", "two"]
    assert log.read_text().endswith("one\ntwo\n")


def test_failure_has_the_end_of_the_log_and_the_advice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = "for i in range(100): print(f'line {i}')\nraise SystemExit(3)"
    with pytest.raises(StageError) as caught, stage("count") as this:
        this.run([sys.executable, "-c", program], log=log, advice="make again")
    text = format_failure(caught.value)
    assert "count: exit status 3" in text
    assert "line 99" in text
    assert "line 79" not in text
    assert text.endswith("next: make again")


def test_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="'no-such-program'"), stage("try") as this:
        this.run(["no-such-program"], log=tmp_path / "log")


def test_error_exits_with_status_1_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, exit_with_message():
        raise ValueError("port 53 is in use: release it")
    assert caught.value.code == 1
    assert capsys.readouterr().err == "error: port 53 is in use: release it\n"


def test_interrupt_exits_with_status_130(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, exit_with_message():
        raise KeyboardInterrupt
    assert caught.value.code == 130
    assert "repeat the command" in capsys.readouterr().err
