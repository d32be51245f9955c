"""rlt explain network: what a job's pods would get on given nodes, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from rlt_cli.failure import Failure
from rlt_cli.main import program
from rlt_cli.offline_job import offline_job
from rlt_cli.output import TABLE, emit, say, table
from rlt_cli.readable_files import read_and_validate
from rlt_core.fabric.decision import explain_fabric
from rlt_core.fabric.demand import build_demands


def explain_network(file: str, nodes: str, runtimes: tuple[str, ...], output: str) -> None:
    """Print it for the first job of a file."""
    validated = read_and_validate([file, *runtimes])
    for document, finding in validated.findings:
        say(f"{document.file}:{document.line_of(finding.field)}: {finding}")
    if validated.findings or not validated.jobs():
        raise click.exceptions.Exit(1)
    manifest = validated.jobs()[0]
    try:
        job = offline_job(manifest, validated)
    except ValueError as error:
        raise Failure(str(error), next=f"{program()} explain network {file} --nodes {nodes} --runtime FILE") from error
    assert job.spec
    demands = build_demands(job.spec, manifest["spec"], job.runtime.spec if job.runtime else None)
    found = explain_fabric(nodes_in(nodes), *demands)
    if output == TABLE:
        click.echo(page(found))
    else:
        emit(found, output)


def page(found: Mapping[str, Any]) -> str:
    """The answer for a person; the sources are in the JSON."""
    refused, attach = found["refused"], found["attach"]
    resources = ", ".join(f"{name}: {count}" for name, count in attach["resources"].items())
    facts = {
        "profile": found["profile"],
        "fabric": found["fabric"],
        "vendor": found["vendor"],
        "nodes": ", ".join(found["candidates"]) or "none",
        "agree": "yes" if found["agree"] else "no",
        "refused": f"{refused['code']}: {refused['message']}" if refused else "no",
        "attach": f"{attach['mode']} {resources}".strip(),
    }
    lines = [f"{name:<9}{value}" for name, value in facts.items()]
    lines += [f"warning  {warning}" for warning in found["warnings"]]
    lines += [f"evidence {each}" for each in found["evidence"]]
    rows = [(each["name"], each["value"], each["rule"]) for each in found["env"]]
    return "\n".join([*lines, "", table(("VARIABLE", "VALUE", "RULE"), rows)])


def nodes_in(file: str) -> Any:
    """What `kubectl get nodes -o yaml` has written to a file."""
    import yaml

    try:
        with click.open_file(file) as text:
            return yaml.load(text, Loader=yaml.CSafeLoader)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}.", next=f"kubectl get nodes -o yaml > {file}") from error
    except yaml.YAMLError as error:
        raise Failure(f"{file}: {error}", next=f"kubectl get nodes -o yaml > {file}") from error
