"""Convert a file of another program to an RLTrainingJob: detect its format, and write the job with comments."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

import yaml

from rlt.convert.configs import convert_hydra
from rlt.convert.draft import ConvertError, Draft, LeftOut
from rlt.convert.manifests import CONVERTERS, convert_manifest
from rlt.convert.roll import convert_roll
from rlt.convert.script import convert_script
from rlt.yaml_text import to_yaml
from rlt_core.targets.launch import PROGRAM
from rlt_core.targets.shell import END_OF_FILE

Target = Literal["command", "builtin", "verl", "roll"]
VERL_BLOCKS = {"actor_rollout_ref", "trainer", "algorithm"}
ROLL_BLOCKS = {"actor_train", "actor_infer", "rollout_batch_size", "pretrain"}
RENDERED = re.compile(
    rf"managed-by\W+rlt-operator|rendered by `rlt render|{END_OF_FILE}|source\W+{PROGRAM.replace('.', '-')}\b"
)
"""A label of the operator's manifests, and what every file of `rlt render --target` contains."""
WIDTH = 118


@dataclass(frozen=True)
class Converted:
    """A job and what it does not have of its source."""

    manifest: dict[str, Any]
    left_out: tuple[LeftOut, ...]

    def to_yaml(self, file: str) -> str:
        """The job as YAML, after one comment for each part of the source that it does not have."""
        lines = [f"Converted from {file} by rlt convert."]
        if self.left_out:
            lines += ["Not carried over:", *(f"- {each}" for each in self.left_out)]
        wrapped = [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ") or [""]]
        return "".join(f"# {line}\n" for line in wrapped) + to_yaml(self.manifest)


def convert(
    text: str, file: str, to: Target = "command", image: str | None = None, runtime: str | None = None
) -> Converted:
    """Convert the content of a file. `image` and `runtime`: those of the job, which a source may not have. Raises
    ConvertError with the line and what was understood."""
    draft = _convert(text, file, to)
    if image:
        draft.put("cluster.image", image)
    if runtime:
        draft.put("runtimeRef.name", runtime)
    draft.name = draft.name or PurePath(file).stem
    if draft.get("cluster.workers[].accelerator.count") and not draft.get("cluster.workers[].accelerator.resourceName"):
        draft.put("cluster.workers[].accelerator.resourceName", "nvidia.com/gpu")
    return Converted(draft.build_manifest(), tuple(draft.left_out))


def _convert(text: str, file: str, to: Target) -> Draft:
    if RENDERED.search(text):
        raise ConvertError(
            f"line 1: {file} is what rlt or its operator wrote for a job: use the job's file, or print the job with "
            "kubectl get rltrainingjob NAME -o yaml."
        )
    documents = _read_yaml(text)
    is_roll = bool(documents and len(ROLL_BLOCKS & documents[0].keys()) > 1)
    if to == "roll" and not is_roll:
        raise ConvertError(f"line 1: {file} is not a config of ROLL (actor_train): use --to command or --to builtin.")
    if documents is None:
        return convert_script(text, to)
    if not documents:
        raise ConvertError(f"line 1: {file} is empty: pass a script, a config or a manifest.")
    manifests = [each for each in documents if each.get("kind") in CONVERTERS]
    if manifests:
        if to != "command":
            kind = manifests[0]["kind"]
            raise ConvertError(f"line 1: {kind} has no settings of a training: use --to command.")
        try:
            draft = convert_manifest(manifests[0])
        except (AttributeError, KeyError, TypeError) as error:
            kind = manifests[0]["kind"]
            raise ConvertError(
                f"line 1: the {kind} has a field of another type ({error}): "
                "check it with kubectl apply --dry-run=server."
            ) from error
        for each in documents:
            if each is not manifests[0]:
                name = (each.get("metadata") or {}).get("name", "")
                draft.leave_out(f"{each.get('kind', 'document')} {name}".strip(), "one job is converted: pass it alone")
        return draft
    config = documents[0]
    if to == "verl":
        raise ConvertError(f"line 1: {file} is not a command line or script of verl: use --to command or builtin.")
    if VERL_BLOCKS & config.keys():
        return convert_hydra(config, to)
    if is_roll:
        return convert_roll(config, to, file)
    keys = ", ".join(map(str, list(config)[:8]))
    raise ConvertError(
        f"line 1: {file} is YAML with the keys {keys}, and none of the formats: a manifest of kind "
        f"{', '.join(CONVERTERS)}, a config of verl (actor_rollout_ref) or of ROLL (actor_train)."
    )


def _read_yaml(text: str) -> list[dict[str, Any]] | None:
    """The documents if all are objects. None for a script. Raises ConvertError for a manifest that is not YAML."""
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.MarkedYAMLError as error:
        if text.lstrip().startswith(("apiVersion:", "kind:", "defaults:", "actor_rollout_ref:")):
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ConvertError(f"line {line}: it is not YAML: {error.problem}: correct the syntax.") from error
        return None
    except yaml.YAMLError:
        return None
    return documents if all(isinstance(each, dict) for each in documents) else None
