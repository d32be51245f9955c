"""rlt init: write an example manifest."""

from __future__ import annotations

import click

from rlt_cli.failure import Failure
from rlt_cli.file_validation import validate_documents
from rlt_cli.manifest_files import parse_documents
from rlt_cli.manifest_template import add_all_fields, load_template
from rlt_cli.output import YAML, emit_manifests, output_option, print_message
from rlt_cli.program import program_name

NAMES = {"arithmetic": "arithmetic-grpo", "gsm8k": "gsm8k-grpo", "runtime": "gpu"}


@click.command()
@click.option("--kind", type=click.Choice(["job", "runtime"]), default="job", show_default=True)
@click.option("--preset", type=click.Choice(["arithmetic", "gsm8k"]), default="arithmetic", show_default=True)
@click.option("--name", help="The name of the object.  [default: depends on the preset]")
@click.option("--runtime", metavar="NAME", help="The RLRuntime that provides image, pods and volume.")
@click.option("--full", is_flag=True, help="Add every other field as a YAML comment.")
@output_option(default=YAML)
def command(kind: str, preset: str, name: str | None, runtime: str | None, full: bool, output: str) -> None:
    """Write an example manifest to standard output. The manifest is valid, and its YAML has comments."""
    if kind == "runtime" and runtime:
        raise click.UsageError("--runtime cannot be combined with --kind runtime")
    template = preset if kind == "job" else "runtime"
    text = load_template(template, object_name=name or NAMES[template], runtime=runtime)
    validated = validate_documents(list(parse_documents(template, text.encode())))
    for _, finding in validated.findings:  # of the two names
        raise Failure(f"{finding}.", next=f"{program_name()} init --help")
    schema = "rltrainingjob.json" if kind == "job" else "rlruntime.json"
    if output == YAML:
        click.echo(f"# yaml-language-server: $schema={schema}\n{add_all_fields(text) if full else text}", nl=False)
    else:
        emit_manifests([document.manifest for document in validated.documents], output)
    kind_option = schema.removesuffix(".json")
    print_message(f"next: {program_name()} explain --json-schema {kind_option} > {schema}    # for editors")
