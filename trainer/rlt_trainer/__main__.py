"""The command rlt-trainer."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from rlt_api.driver_report import TRAINER_ERROR
from rlt_api.training_config import TrainingConfig
from rlt_trainer.errors import Terminated, TrainingError, root_cause

TERMINATED = 143
"""Exit code after SIGTERM, as shells have it: 128 + 15."""
INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT."""
PROGRAMS = {
    "replay": ("rlt_trainer.driver.replay", "repeat the updates of a recorded step"),
    "trace": ("rlt_trainer.telemetry.chrome_trace", "a run's spans as a trace for Perfetto"),
}
"""Commands with a module and arguments of their own: `main(arguments) -> int`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when the work is done, 143 after SIGTERM, 130 after Ctrl-C, else 1. The reason is the last line on
    standard error."""
    parser = command_line()
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
        print(f"{TRAINER_ERROR} {sentence(cause)}", file=sys.stderr, flush=True)
        return 1


def command_line() -> argparse.ArgumentParser:
    """The arguments."""
    parser = argparse.ArgumentParser(
        prog="rlt-trainer",
        description="Reinforcement learning of language models on Ray: FSDP2 and vLLM.",
        epilog=f"Exit code 0: done. {TERMINATED}: SIGTERM, after a checkpoint. {INTERRUPTED}: Ctrl-C. 1: an error, "
        "which the last line on standard error tells.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    train = commands.add_parser("run", help="train, from the start or the newest checkpoint to the exported model")
    train.add_argument("--config", type=Path, required=True, help="a TrainingConfig in JSON")
    train.add_argument("--local", action="store_true", help="with a Ray of its own on this machine")
    preflight = commands.add_parser("preflight", help="check the nodes of a Ray cluster before the training")
    preflight.add_argument("--config", type=Path, required=True, help="a TrainingConfig in JSON, with preflight")
    preflight.add_argument("--local", action="store_true", help="with a Ray of its own on this machine")
    export = commands.add_parser(
        "export", help="write a checkpoint's model in Hugging Face's format, without Ray or accelerators"
    )
    export.add_argument("--checkpoint", type=Path, required=True, metavar="DIR", help="a folder checkpoints/step-N")
    export.add_argument("--output", type=Path, required=True, metavar="DIR", help="is replaced if it is there")
    export.add_argument(
        "--config", type=Path, help="the run's TrainingConfig. Default: config.json in the run directory around DIR"
    )
    for name, (_, text) in PROGRAMS.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def run(options: argparse.Namespace, rest: Sequence[str]) -> int:
    """Do what was asked. torch and Ray take seconds to import: not for --help or a wrong config."""
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
    # Ray reads it when it is imported. A thread that still generates when the run has ended must not start a new Ray.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    if options.command == "preflight":
        from rlt_trainer.preflight.run import run as check

        return check(config, local=options.local)
    from rlt_trainer.driver.run import run as train

    train(config, local=options.local)
    return 0


def read_config(path: Path) -> TrainingConfig:
    """The config at `path`. Raises ValueError naming what is wrong with it."""
    try:
        return TrainingConfig.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise ValueError(f"--config {path}: no such file.") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ValueError(f"--config {path}: {field}: {first['msg']}.") from error


def is_expected(error: BaseException) -> bool:
    """Whether its message alone says what to do."""
    return isinstance(error, ValueError | FileNotFoundError | TrainingError)


def sentence(error: BaseException) -> str:
    """The error in one line."""
    text = " ".join(str(error).split())
    return text if is_expected(error) and text else f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    sys.exit(main())
