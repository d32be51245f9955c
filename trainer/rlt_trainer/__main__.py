"""The command rlt-trainer."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from rlt_api.driver_report import TRAINER_ERROR
from rlt_api.training_config import TrainingConfig


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when the training came to its end, 130 after Ctrl-C, else 1. The reason is the last line on standard
    error."""
    parser = argparse.ArgumentParser(prog="rlt-trainer", description="GRPO on Ray: FSDP2 and vLLM.")
    run_parser = parser.add_subparsers(dest="command", required=True).add_parser("run", help="train")
    run_parser.add_argument("--config", type=Path, required=True, help="a TrainingConfig in JSON")
    run_parser.add_argument("--local", action="store_true", help="with a Ray of its own on this machine")
    options = parser.parse_args(arguments)
    try:
        config = read_config(options.config)
        from rlt_trainer import driver  # torch and Ray take seconds to import: not for --help or a wrong config

        driver.run(config, local=options.local)
    except KeyboardInterrupt:
        print("rlt-trainer: interrupted", file=sys.stderr, flush=True)
        return 130  # as shells have it: 128 + SIGINT
    except Exception as error:
        cause = root_cause(error)
        if not is_expected(cause):
            traceback.print_exception(error)
        print(f"{TRAINER_ERROR} {sentence(cause)}", file=sys.stderr, flush=True)
        return 1
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


def root_cause(error: BaseException) -> BaseException:
    """The error itself, where Ray wraps one that was raised in an actor."""
    cause = getattr(error, "cause", None)  # ray.exceptions.RayTaskError; Ray need not be imported yet
    return root_cause(cause) if isinstance(cause, BaseException) else error


def is_expected(error: BaseException) -> bool:
    """Whether its message alone says what to do."""
    from rlt_trainer.errors import TrainingError

    return isinstance(error, ValueError | FileNotFoundError | TrainingError)


def sentence(error: BaseException) -> str:
    """The error in one line."""
    text = " ".join(str(error).split())
    return text if is_expected(error) and text else f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    sys.exit(main())
