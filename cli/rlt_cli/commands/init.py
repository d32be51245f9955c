"""rlt init: write an example manifest, or a first job for a model and a cluster."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from rlt.first_job.request import Request
from rlt.manifest_files import parse_documents
from rlt.program import program_name
from rlt.validation import validate_documents
from rlt.yaml_text import to_yaml
from rlt_cli.failure import Failure
from rlt_cli.first_job import create_first_job, first_job_options, read_request
from rlt_cli.gallery import Example, find_example, find_similar_names, load_examples
from rlt_cli.manifest_template import add_all_fields, load_runtime, set_name, use_runtime
from rlt_cli.output import TABLE, YAML, emit, emit_manifests, emit_table, output_option, print_message

DEFAULT = "arithmetic-grpo"


@click.command()
@click.argument("example", required=False, shell_complete=lambda *given: complete(given[-1]))
@click.option("--list", "list_only", is_flag=True, help="List the examples.")
@click.option("--kind", type=click.Choice(["job", "runtime"]), default="job", show_default=True)
@click.option("--name", help="The name of the object.  [default: the example's name]")
@click.option("--runtime", metavar="NAME", help="The RLRuntime that provides image, pods and volume.")
@click.option("--full", is_flag=True, help="Add every other field as a YAML comment.")
@first_job_options
@output_option(default=YAML)
@click.pass_context
def command(
    context: click.Context,
    /,
    example: str | None,
    list_only: bool,
    kind: str,
    name: str | None,
    runtime: str | None,
    full: bool,
    ask: bool,
    output: str,
    **given: Any,
) -> None:
    """Write an example manifest to standard output. The manifest is valid, and its YAML has comments.

    EXAMPLE is the name or the number of an example in --list, which is a table by default. Without it, the job of
    01-arithmetic-grpo is written. With --model or --ask, a first job is written instead: a runtime, a volume and a job
    with the first settings, from fast to slow, that fit into the memory of the GPUs.
    """
    if request := read_request(given, ask=ask):
        if example or runtime or list_only or full or kind == "runtime":
            raise click.UsageError("a first job cannot be combined with EXAMPLE, --list, --kind, --runtime and --full")
        write_first_job(request, name, output)
        return
    if list_only:
        is_default = context.get_parameter_source("output") == ParameterSource.DEFAULT
        list_examples(TABLE if is_default else output)
        return
    if kind == "runtime":
        if runtime or example:
            other = "--runtime" if runtime else "EXAMPLE"
            raise click.UsageError(f"{other} cannot be combined with --kind runtime")
        text = load_runtime()
    else:
        text = get_example(example or DEFAULT).text
    text = set_name(text, name) if name is not None else text
    text = use_runtime(text, runtime) if runtime else text
    validated = validate_documents(list(parse_documents(example or kind, text.encode())))
    for _, finding in validated.findings:  # of the two names
        raise Failure(f"{finding}.", next=f"{program_name()} init --help")
    schema = "rltrainingjob.json" if kind == "job" else "rlruntime.json"
    if output == YAML:
        click.echo(f"# yaml-language-server: $schema={schema}\n{add_all_fields(text) if full else text}", nl=False)
    else:
        emit_manifests([document.manifest for document in validated.documents], output)
    kind_option = schema.removesuffix(".json")
    print_message(f"next: {program_name()} explain --json-schema {kind_option} > {schema}    # for editors")


def write_first_job(request: Request, name: str | None, output: str) -> None:
    """Print runtime, volume and job. Raises Failure if no settings fit or the name is invalid."""
    first = create_first_job(request, name)
    for _, finding in validate_documents(list(parse_documents("job", to_yaml(first.job).encode()))).findings:
        raise Failure(f"{finding}.", next=f"{program_name()} init --help")
    if output == YAML:
        click.echo(first.to_text(), nl=False)
    else:
        emit_manifests(first.manifests, output)
    if request.image is None:
        print_message("note: the image is a placeholder: build and push yours, and give it with --image")
    print_message(f"next: with the output in FILE, {program_name()} validate FILE, and kubectl apply -f FILE")


def complete(beginning: str) -> list[str]:
    """The names of examples for a shell."""
    return [each.name for each in load_examples() if each.name.startswith(beginning)]


def list_examples(output: str) -> None:
    """Print all examples."""
    rows = [(each.number, each.name, each.facts["Hardware"], each.title) for each in load_examples()]
    if output == TABLE:
        emit_table(("NUMBER", "NAME", "HARDWARE", "SHOWS"), rows)
    else:
        emit([dict(zip(("number", "name", "hardware", "shows"), row, strict=True)) for row in rows], output)


def get_example(name: str) -> Example:
    """The example with a name or number. Raises Failure."""
    found = find_example(name)
    if found is None:
        meant = find_similar_names(name)
        hint = f" Did you mean {' or '.join(meant)}?" if meant else ""
        raise Failure(f"{name}: is not an example.{hint}", next=f"{program_name()} init --list")
    return found
