"""rlt convert: convert a script, config or manifest of another program to a job."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click

from rlt.convert.convert import convert
from rlt.convert.draft import ConvertError
from rlt.convert.missing import list_missing
from rlt.manifest_files import STDIN, parse_documents
from rlt.program import program_name
from rlt.validation import validate_documents
from rlt_cli.failure import Failure
from rlt_cli.file_arguments import file_argument
from rlt_cli.output import JSON, YAML, emit, emit_table, output_option, print_message


@click.command()
@file_argument
@click.option(
    "--to",
    type=click.Choice(["command", "builtin", "verl", "roll"]),
    default="command",
    show_default=True,
    help="command runs the same program with the same arguments, builtin rlt's trainer with the same settings. verl "
    "and roll are jobs of that framework.type, with fields and overrides instead of arguments or a config.",
)
@click.option("--image", help="Image of the job, instead of the source's.")
@click.option("--runtime", help="RLRuntime of the job, which gives image, pods and volume.")
@output_option(default=YAML)
@click.pass_context
def command(
    context: click.Context,
    file: str,
    to: Literal["command", "builtin", "verl", "roll"],
    image: str | None,
    runtime: str | None,
    output: str,
) -> None:
    """Convert a script, config or manifest of another program to a job.

    FILE is a command line or launch script of verl, OpenRLHF, slime, SkyRL, NeMo-RL, TRL and other programs, also with
    #SBATCH lines, a config of verl (Hydra), ROLL, NeMo-RL, SkyRL or TRL, a RayCluster, RayJob, TrainJob, PyTorchJob,
    JobSet or Job, or a task of SkyPilot or dstack; - is standard input. Nothing is executed. Comments in the YAML name
    each part that was not carried over, and the reason; -o table lists them. The job is validated: exit code 1 if
    fields must be filled in.
    """
    try:
        text = sys.stdin.read() if file == STDIN else Path(file).read_text()
        converted = convert(text, file, to, image=image, runtime=runtime, read=lambda path: read_beside(file, path))
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}.", next=f"ls -l {file}") from error
    except UnicodeDecodeError as error:
        raise Failure(f"{file}: is not text in UTF-8.", next=f"file {file}") from error
    except ConvertError as error:
        raise Failure(f"{file}: {error}", next=f"{program_name()} convert --help") from error
    written = converted.to_yaml(file)
    if output == YAML:
        click.echo(written, nl=False)
    elif output == JSON:
        emit({"manifest": converted.manifest, "leftOut": [asdict(each) for each in converted.left_out]}, JSON)
    else:
        emit_table(("LINE", "NOT CARRIED OVER", "REASON"), [(n.line, n.what, n.why) for n in converted.left_out])
    validated = validate_documents(list(parse_documents(file, written.encode())))
    for note in validated.notes:
        print_message(f"note: {note.message}")
    missing = list_missing(converted.manifest)
    for finding in missing:
        print_message(f"fill in: {finding}")
    for each in converted.missing_files:
        print_message(f"fill in: {each}")
    context.exit(1 if missing or converted.missing_files else 0)


def read_beside(file: str, path: str) -> str | None:
    """Read a file that a source names: relative to the folder of the source, or to a folder above it up to the
    repository's. None if there is none, or if it is not text."""
    folder = Path.cwd() if file == STDIN else Path(file).resolve().parent
    for base in (folder, *folder.parents):
        try:
            return (base / path).read_text()
        except (OSError, UnicodeDecodeError, ValueError):
            if (base / ".git").exists() or Path(path).is_absolute():
                return None
    return None
