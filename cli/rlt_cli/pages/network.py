"""rlt explain network: the network settings of a job on given nodes, and the reason for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from rlt.offline_job import build_offline_job, detect_network
from rlt_api.findings.masking import mask_json
from rlt_cli.failure import Failure
from rlt_cli.file_validation import load_valid_jobs
from rlt_cli.output import TABLE, emit, get_width
from rlt_cli.table import format_table
from rlt_core.fabric.decision import explain_fabric
from rlt_core.fabric.demand import build_demands
from rlt_core.fabric.inventory import build_node
from rlt_core.fabric.nodes import parse_nodes
from rlt_core.network_status import blocks_start


def explain_network(file: str, nodes: str, runtimes: tuple[str, ...], default_runtime: str | None, output: str) -> int:
    """Print the network settings of the first job in a file. Returns 1 if the operator would hold it."""
    validated = load_valid_jobs(file, runtimes, default_runtime)
    manifest = validated.jobs()[0]
    job = build_offline_job(manifest, validated)
    assert job.spec
    demands = build_demands(job.spec, manifest["spec"], job.runtime.accelerators if job.runtime else ())
    node_list = read_nodes(nodes)
    found = mask_json(explain_fabric(node_list, *demands))
    if output == TABLE:
        click.echo(format_page(found, get_width()))
    else:
        emit(found, output)
    decided = detect_network(job, parse_nodes(node_list)).status.network
    return int(decided is not None and blocks_start(decided, job.spec))


def format_page(found: Mapping[str, Any], width: int | None = None) -> str:
    """The settings for people. The JSON output also has their sources."""
    rejection = found["rejection"]
    attach = found["attach"]
    resources = ", ".join(f"{name}: {count}" for name, count in attach["resources"].items())
    facts = {
        "profile": found["profile"],
        "fabric": found["fabric"],
        "vendor": found["vendor"],
        "nodes": ", ".join(found["candidates"]) or "none",
        "agree": "yes" if found["agree"] else "no",
        "rejected": f"{rejection['code']}: {rejection['message']}" if rejection else "no",
        "attach": f"{attach['mode']} {resources}".strip(),
    }
    lines = [f"{name:<9}{value}" for name, value in facts.items()]
    lines += [f"warning  {warning}" for warning in found["warnings"]]
    lines += [f"evidence {each}" for each in found["evidence"]]
    rows = [(each["name"], each["value"], each["rule"]) for each in found["env"]]
    return "\n".join([*lines, "", format_table(("VARIABLE", "VALUE", "RULE"), rows, width)])


def read_nodes(file: str) -> Any:
    """Read the output of `kubectl get nodes -o yaml`, or a list of machines without Kubernetes, from a file."""
    import yaml

    try:
        with click.open_file(file) as text:
            nodes = yaml.load(text, Loader=yaml.CSafeLoader)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}.", next="kubectl get nodes -o yaml") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Failure(f"{file}: {error}", next="kubectl get nodes -o yaml") from error
    items = nodes.get("items") if isinstance(nodes, Mapping) else nodes
    if isinstance(items, list) and items and all(isinstance(each, Mapping) and "name" in each for each in items):
        try:
            return [build_node(each) for each in items]
        except ValueError as error:
            raise Failure(f"{file}: {error}.", next=f"cat {file}") from error
    if not isinstance(items, list) or not all(isinstance(each, Mapping) and "metadata" in each for each in items):
        raise Failure(f"{file}: not a list of nodes.", next="kubectl get nodes -o yaml")
    return nodes
