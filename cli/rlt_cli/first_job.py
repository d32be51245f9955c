"""The options of `rlt init` that describe a first job, and the questions for those that are not given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from rlt.first_job.alternatives import list_alternatives
from rlt.first_job.gpus import GPUS
from rlt.first_job.manifests import FirstJob, build_first_job
from rlt.first_job.request import PRESETS, NoFirstJobError, Request
from rlt.program import program_name
from rlt_cli.failure import Failure

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_MODEL = "Qwen/Qwen3-8B"
NAMES = tuple(field.name for field in fields(Request))
"""The parameters of the command that make a request."""


def first_job_options(command: Command) -> Command:
    """Add the options to a command, which receives those in NAMES and `ask`."""
    options = (
        click.option("--ask", is_flag=True, help="Ask for model, GPUs, nodes and data of a first job."),
        click.option("--model", metavar="NAME", help="Write a first job for this model: a hub name or a folder."),
        click.option("--gpu", type=click.Choice([*GPUS]), help="The kind of GPU.  [default: h100]"),
        click.option("--gpus-per-node", "per_node", type=click.IntRange(1, 64), metavar="N", help="GPUs of a node."),
        click.option("--nodes", type=click.IntRange(1, 1024), metavar="N", help="Number of nodes.  [default: 1]"),
        click.option("--data", metavar="NAME", help="gsm8k, math, a hub name, or a file.  [default: gsm8k]"),
        click.option("--lora", is_flag=True, default=None, help="Train adapters alone."),
        click.option("--parameters", metavar="N", help="Parameters of the model, such as 7B, if its name has none."),
        click.option("--image", metavar="IMAGE", help="The trainer's image."),
        click.option("--storage-class", metavar="NAME", help="A StorageClass with ReadWriteMany."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_request(given: dict[str, Any], *, ask: bool) -> Request | None:
    """Return the request of the options; None if there is none. Raises UsageError for options without a model."""
    values = {name: value for name, value in given.items() if value is not None}
    if ask:
        values = _ask(values)
    if not values:
        return None
    if "model" not in values:
        raise click.UsageError("Missing option '--model', or --ask.")
    return Request(**values)


def _ask(given: dict[str, Any]) -> dict[str, Any]:
    """Ask for what is not given, on standard error."""
    questions: dict[str, tuple[str, Any, Any]] = {
        "model": ("Model on the hub, folder in the pods, or s3://BUCKET/PREFIX", DEFAULT_MODEL, str),
        "gpu": ("GPU", "h100", click.Choice([*GPUS])),
        "per_node": ("GPUs of a node", None, click.IntRange(1, 64)),
        "nodes": ("Nodes", 1, click.IntRange(1, 1024)),
        "data": (f"Data: {', '.join(PRESETS)}, a hub name, or a file in the pods or a bucket", PRESETS[0], str),
    }
    answers = dict(given)
    for name, (question, default, kind) in questions.items():
        if name not in answers:
            usual = GPUS[answers["gpu"]].per_node if name == "per_node" else default
            answers[name] = click.prompt(question, default=usual, type=kind, err=True)
    if "lora" not in answers:
        alone = "--lora" in _list_alternatives_of_misfit(Request(**answers))
        question = "All weights do not fit. Train adapters alone" if alone else "Train adapters alone (LoRA)"
        answers["lora"] = click.confirm(question, default=alone, err=True)
    return answers


def _list_alternatives_of_misfit(request: Request) -> list[str]:
    try:
        build_first_job(request)
    except NoFirstJobError:
        return list_alternatives(request)
    return []


def create_first_job(request: Request, name: str | None) -> FirstJob:
    """Build the manifests. Raises Failure with the options that fit."""
    try:
        return build_first_job(request, name)
    except NoFirstJobError as error:
        alternatives = list_alternatives(request)
        hint = f" It fits with {' or '.join(alternatives)}." if alternatives else ""
        raise Failure(f"{error}.{hint}", next=f"{program_name()} init --help") from error
