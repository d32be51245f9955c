"""The rlt-trainer command."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from rlt_api.spec.training_config import TrainingConfig, UnsupportedVersionError, validate_version
from rlt_pod.clear import NOT_CLEAR
from rlt_pod.report.driver_report import METRICS_PORT, TRAINER_ERROR
from rlt_trainer.driver.earlier_processes import NotClearError, await_end, start_check
from rlt_trainer.errors import Terminated, TrainingError, root_cause

TERMINATED = 143
"""Exit code after SIGTERM, as in shells: 128 + 15."""
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT."""
PROGRAMS = {
    "bucket": ("rlt_trainer.bucket.command", "verify that a run can use its bucket"),
    "compare": (
        "rlt_trainer.evaluation.compare",
        "compare evaluations of one run or two, with confidence intervals",
    ),
    "prepare": ("rlt_trainer.data.prepare", "write a published data set as parquet files in verl's format"),
    "publish": ("rlt_trainer.driver.publish_command", "publish the export of a run whose publication has failed"),
    "replay": ("rlt_trainer.driver.replay", "repeat the updates of a recorded step"),
    "trace": ("rlt_trainer.telemetry.chrome_trace", "print a run's spans as a trace for Perfetto"),
}
"""Commands whose module parses its own arguments with `main(arguments) -> int`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return exit code 0 on success, 143 after SIGTERM, 130 after Ctrl-C, 75 if processes of an
    earlier attempt may exist, else 1.

    The last line on standard error is the reason.
    """
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and options.command not in PROGRAMS:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return run(options, rest)
    except Terminated as end:
        print(f"rlt-trainer: terminated: {end}", file=sys.stderr, flush=True)
        return TERMINATED
    except KeyboardInterrupt:
        print("rlt-trainer: interrupted", file=sys.stderr, flush=True)
        return INTERRUPTED
    except Exception as error:
        cause = root_cause(error)
        if not is_expected(cause):
            traceback.print_exception(error)
        print(f"{TRAINER_ERROR} {format_error(cause)}", file=sys.stderr, flush=True)
        return NOT_CLEAR if isinstance(cause, NotClearError) else 1


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="rlt-trainer",
        description="Reinforcement learning of language models with FSDP2 and vLLM on Ray.",
        epilog=f"Exit code 0: success. {TERMINATED}: SIGTERM, after a checkpoint. {INTERRUPTED}: Ctrl-C. "
        f"{NOT_CLEAR}: with --clear, processes of an earlier attempt may exist. 1: an error; the last line on standard "
        "error is its message.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    train = commands.add_parser("run", help="train from the start or the latest checkpoint, and export the model")
    train.add_argument("--config", type=Path, required=True, help="TrainingConfig in JSON")
    train.add_argument("--local", action="store_true", help="start Ray on this machine instead of joining a cluster")
    train.add_argument("--port", type=int, default=METRICS_PORT, help="port of the metrics, 0 for a free one")
    train.add_argument("--attempt", type=int, help="number of the attempt, to take the lease of the run directory")
    train.add_argument("--holder", default="", help="ID of the Ray job, with --attempt")
    train.add_argument(
        "--clear", type=int, metavar="PODS", help="wait until no process of an earlier attempt is in the cluster's pods"
    )
    trial = commands.add_parser("trial", help="run one step of the training, and read its checkpoint back")
    trial.add_argument("--config", type=Path, required=True, help="TrainingConfig in JSON")
    trial.add_argument("--local", action="store_true", help="start Ray on this machine instead of joining a cluster")
    trial.add_argument("--report", type=Path, required=True, metavar="FILE", help="file for the results in JSON")
    export = commands.add_parser(
        "export", help="write a checkpoint's model in Hugging Face format, without Ray or accelerators"
    )
    export.add_argument(
        "--checkpoint", type=Path, required=True, metavar="DIR", help="checkpoint folder: checkpoints/step-N"
    )
    export.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="folder of the model; replaced if it exists"
    )
    export.add_argument(
        "--config",
        type=Path,
        help="TrainingConfig of the run. Default: config.json in the run directory that contains DIR",
    )
    for name, (_, text) in PROGRAMS.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def run(options: argparse.Namespace, rest: Sequence[str]) -> int:
    """Run the command. torch and Ray take seconds to import: import them only after the config is valid."""
    if options.command in PROGRAMS:
        program = importlib.import_module(PROGRAMS[options.command][0])
        return int(program.main(rest))
    if options.command == "export":
        config = read_config(options.config or options.checkpoint.absolute().parent.parent / "config.json")
        from rlt_trainer.checkpoint.export_checkpoint import export_checkpoint

        export_checkpoint(options.checkpoint, options.output, config)
        print(options.output)
        return 0
    config = read_config(options.config)
    # Ray reads it at import. A thread that still generates after the end of the run must not start a new Ray.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    if options.command == "trial":
        from rlt_trainer.driver.trial import run_trial

        options.report.write_text(json.dumps(run_trial(config, local=options.local)))
        return 0
    check = None if options.clear is None else start_check(options.clear)  # beside the imports
    from rlt_trainer.driver.run import run as train

    if check:
        await_end(check)
    execution = None if options.attempt is None else (options.attempt, options.holder)
    train(config, local=options.local, port=options.port, execution=execution)
    return 0


def read_config(path: Path) -> TrainingConfig:
    """Read the config at `path`. Raises ValueError with the invalid field."""
    try:
        text = path.read_bytes()
        validate_version(text)
        return TrainingConfig.model_validate_json(text)
    except FileNotFoundError as error:
        raise ValueError(f"--config {path}: no such file.") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ValueError(f"--config {path}: {field}: {first['msg']}.") from error
    except UnsupportedVersionError as error:
        raise ValueError(f"--config {path}: {error}") from error


def is_expected(error: BaseException) -> bool:
    """Whether the message is sufficient for users, without a traceback."""
    return isinstance(error, ValueError | FileNotFoundError | TrainingError)


def format_error(error: BaseException) -> str:
    """Format the error in one line."""
    text = " ".join(str(error).split())
    return text if is_expected(error) and text else f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    sys.exit(main())
