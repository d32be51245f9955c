"""rlt validate: validate manifests."""

from __future__ import annotations

from dataclasses import asdict

import click

from rlt.offline_job import build_offline_job, detect_network
from rlt_api.spec.runtime_policy import RuntimePolicy
from rlt_cli.file_arguments import FILE, files_argument
from rlt_cli.file_validation import load_files
from rlt_cli.network_warnings import print_network_warnings
from rlt_cli.output import TABLE, emit, output_option, print_message
from rlt_cli.pages.network import read_nodes
from rlt_cli.runtime_options import runtime_options
from rlt_core.fabric.nodes import parse_nodes


@click.command()
@files_argument
@runtime_options
@click.option(
    "--nodes",
    type=FILE,
    metavar="FILE",
    help="Output of `kubectl get nodes -o yaml`, or a list of machines: also print the warnings about the network.",
)
@output_option()
@click.pass_context
def command(
    context: click.Context,
    files: tuple[str, ...],
    runtimes: tuple[str, ...],
    default_runtime: str | None,
    nodes: str | None,
    output: str,
) -> None:
    """Validate manifests, without a cluster.

    FILE contains any number of RLTrainingJobs and RLRuntimes in YAML or JSON; - is standard input, and of a directory
    all .yaml, .yml and .json files are read. The operator applies
    the same rules, and the labels of the namespace: --default-runtime is the default runtime of the namespace. Exit
    code 1 if a manifest is invalid; notes and warnings do not change it.
    """
    parsed_nodes = parse_nodes(read_nodes(nodes)) if nodes else None
    validated = load_files((*files, *runtimes), RuntimePolicy(default_runtime))
    if output != TABLE:
        errors = [
            {"severity": "error", "file": document.file, "line": document.line_of(finding.field), **finding.to_json()}
            for document, finding in validated.findings
        ]
        emit([*errors, *({"severity": "note", **asdict(note)} for note in validated.notes)], output)
    else:
        for line in validated.finding_lines():
            click.echo(line)
    count = len(validated.documents)
    if validated.findings:
        invalid = len({id(document) for document, _ in validated.findings})
        print_message(f"{invalid} of {count} manifest{'s' * (count > 1)} {'are' if invalid > 1 else 'is'} invalid")
        context.exit(1)
    if parsed_nodes is not None:
        for manifest in validated.jobs():
            if validated.get_runtime_name(manifest) in (None, *validated.runtimes):
                print_network_warnings(detect_network(build_offline_job(manifest, validated), parsed_nodes))
    print_message(f"{count} manifests are valid" if count > 1 else "1 manifest is valid")
