"""Convert a file of another program to an RLTrainingJob: detect its format, and write the job with comments."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from rlt.convert.config_files import Read, carry_config_files
from rlt.convert.documents import read_yaml
from rlt.convert.draft import ConvertError, Draft, LeftOut
from rlt.convert.script import convert_script
from rlt.convert.yaml_sources import convert_documents
from rlt.yaml_text import to_yaml
from rlt_core.targets.launch import PROGRAM
from rlt_core.targets.shell import END_OF_FILE

Target = Literal["command", "builtin", "verl", "roll"]
RENDERED = re.compile(
    rf"managed-by\W+rlt-operator|rendered by `rlt render|{END_OF_FILE}|source\W+{PROGRAM.replace('.', '-')}\b"
)
"""A label of the operator's manifests, and what every file of `rlt render --target` contains."""
PYTHON = re.compile(r"(?:[ \t]*(?:#.*)?\n)*(?:import \w|from [\w.]+ import |\"{3}|'{3})")
"""The beginning of a Python program, after its comments."""
WIDTH = 118


@dataclass(frozen=True)
class Converted:
    """A job and what it does not have of its source."""

    manifest: dict[str, Any]
    left_out: tuple[LeftOut, ...]
    missing_files: tuple[str, ...] = ()
    """Files that the program reads and the job does not have, with what to do."""

    def to_yaml(self, file: str) -> str:
        """The job as YAML, after one comment for each part of the source that it does not have."""
        lines = [f"Converted from {file} by rlt convert."]
        if self.left_out:
            lines += ["Not carried over:", *(f"- {each}" for each in self.left_out)]
        wrapped = [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ") or [""]]
        return "".join(f"# {line}\n" for line in wrapped) + to_yaml(self.manifest)


def convert(
    text: str,
    file: str,
    to: Target = "command",
    image: str | None = None,
    runtime: str | None = None,
    read: Read = lambda path: None,
) -> Converted:
    """Convert the content of a file. `image` and `runtime` are for the job, because a source may have none. `read`
    returns the content of a config file that its program reads.

    Raises ConvertError with the line and what was understood.
    """
    draft = _convert(text, file, to)
    if image:
        draft.put("cluster.image", image)
    if runtime:
        draft.put("runtimeRef.name", runtime)
    draft.name = draft.name or PurePath(file).stem
    if draft.get("cluster.workers[].accelerator.count") and not draft.get("cluster.workers[].accelerator.resourceName"):
        draft.put("cluster.workers[].accelerator.resourceName", "nvidia.com/gpu")
    missing = carry_config_files(draft, read)
    return Converted(draft.build_manifest(), tuple(draft.left_out), tuple(missing))


def _convert(text: str, file: str, to: Target) -> Draft:
    if RENDERED.search(text):
        raise ConvertError(
            f"line 1: {file} is what rlt or its operator wrote for a job: use the job's file, or print the job with "
            "kubectl get rltrainingjob NAME -o yaml."
        )
    if "\0" in text:
        raise ConvertError("line 1: it is a binary file: pass a script, a config or a manifest.")
    if PurePath(file).suffix == ".py" or PYTHON.match(text):
        raise ConvertError(
            "line 1: it is a Python program, and only running it shows its settings: pass the command line that starts "
            f"it, such as `echo 'python3 {PurePath(file).name}' | rlt convert -`."
        )
    documents = read_yaml(text, file)
    if documents == []:
        raise ConvertError(f"line 1: {file} is empty: pass a script, a config or a manifest.")
    if documents:
        return convert_documents(documents, file, to)
    if to == "roll":
        raise ConvertError(f"line 1: {file} is not a config of ROLL (actor_train): use --to command or --to builtin.")
    return convert_script(text, to)
