"""Parse command lines with the argument parser of the installed OpenRLHF, without importing torch, Ray or vLLM.

train_ppo_ray.py builds its parser in the block `if __name__ == "__main__"`. The statements of this block up to
`parser.parse_args()` run here. Standard input: a JSON list of lists of options. Standard output: for each, the values
by name, or {"error": MESSAGE}.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import sysconfig
from datetime import datetime
from pathlib import Path
from typing import Any


class Parser(argparse.ArgumentParser):
    """A parser that raises its errors."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ValueError(message)


def read_parser() -> argparse.ArgumentParser:
    """Build the parser of the installed version."""
    source = Path(sysconfig.get_path("purelib")) / "openrlhf/cli/train_ppo_ray.py"
    tree = ast.parse(source.read_text())
    main = next(node for node in tree.body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test))
    end = next(index for index, each in enumerate(main.body) if "parse_args()" in ast.unparse(each))
    names: dict[str, Any] = {"argparse": argparse, "datetime": datetime}
    module = ast.Module(body=main.body[:end], type_ignores=[])
    exec(compile(module, str(source), "exec"), names)
    parser = names["parser"]
    assert isinstance(parser, argparse.ArgumentParser)
    parser.__class__ = Parser
    return parser


def parse_options(options: list[str]) -> dict[str, Any]:
    """Parse one list of options."""
    try:
        return vars(read_parser().parse_args(options))
    except ValueError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    print(json.dumps([parse_options(options) for options in json.load(sys.stdin)], default=str))
