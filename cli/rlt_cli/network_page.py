"""rlt explain network: the network settings of a job on given nodes, and the reason for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from rlt_api.masking import mask_json
from rlt_cli.failure import Failure
from rlt_cli.file_validation import load_valid_jobs
from rlt_cli.offline_job import build_offline_job
from rlt_cli.output import TABLE, emit, format_table
from rlt_core.fabric.decision import explain_fabric
from rlt_core.fabric.demand import build_demands


def explain_network(file: str, nodes: str, runtimes: tuple[str, ...], default_runtime: str | None, output: str) -> None:
    """Print the network settings of the first job in a file."""
    validated = load_valid_jobs(file, runtimes, default_runtime)
    manifest = validated.jobs()[0]
    job = build_offline_job(manifest, validated)
    assert job.spec
    demands = build_demands(job.spec, manifest["spec"], job.runtime.accelerators if job.runtime else ())
    found = mask_json(explain_fabric(read_nodes(nodes), *demands))
    if output == TABLE:
        click.echo(format_page(found))
    else:
        emit(found, output)


def format_page(found: Mapping[str, Any]) -> str:
    """The settings for people. The JSON output also has their sources."""
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
    return "\n".join([*lines, "", format_table(("VARIABLE", "VALUE", "RULE"), rows)])


def read_nodes(file: str) -> Any:
    """Read the output of `kubectl get nodes -o yaml` from a file."""
    import yaml

    try:
        with click.open_file(file) as text:
            return yaml.load(text, Loader=yaml.CSafeLoader)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}.", next=f"kubectl get nodes -o yaml > {file}") from error
    except yaml.YAMLError as error:
        raise Failure(f"{file}: {error}", next=f"kubectl get nodes -o yaml > {file}") from error
