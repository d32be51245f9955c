"""rlt init: a manifest to start from."""

from __future__ import annotations

import click

from rlt_cli.failure import Failure
from rlt_cli.main import program
from rlt_cli.manifest_files import documents
from rlt_cli.manifest_list import emit_manifests
from rlt_cli.manifest_template import template, with_every_field
from rlt_cli.output import YAML, output_option, say
from rlt_cli.validated_files import validate_documents

NAMES = {"arithmetic": "arithmetic-grpo", "gsm8k": "gsm8k-grpo", "runtime": "gpu"}


@click.command()
@click.option("--kind", type=click.Choice(["job", "runtime"]), default="job", show_default=True)
@click.option("--preset", type=click.Choice(["arithmetic", "gsm8k"]), default="arithmetic", show_default=True)
@click.option("--name", help="Of the object.  [default: the preset's]")
@click.option("--runtime", metavar="NAME", help="The RLRuntime that gives image, pods and volume.")
@click.option("--full", is_flag=True, help="With every field, what is not set being commented out (in YAML).")
@output_option(default=YAML)
def command(kind: str, preset: str, name: str | None, runtime: str | None, full: bool, output: str) -> None:
    """Write a manifest to start from on standard output. It is right as it is. Its YAML is commented."""
    if kind == "runtime" and runtime:
        raise click.UsageError("--runtime is for jobs")
    which = preset if kind == "job" else "runtime"
    text = template(which, object_name=name or NAMES[which], runtime=runtime)
    validated = validate_documents(list(documents(which, text.encode())))
    for _, finding in validated.findings:
        raise Failure(f"{finding}.", next=f"{program()} init --help")  # the names are the only part that is not ours
    schema = "rltrainingjob.json" if kind == "job" else "rlruntime.json"
    if output == YAML:
        click.echo(f"# yaml-language-server: $schema={schema}\n{with_every_field(text) if full else text}", nl=False)
    else:
        emit_manifests([dict(document.manifest) for document in validated.documents], output)
    say(f"next: {program()} explain --json-schema {schema.removesuffix('.json')} > {schema}    # for editors")
