"""rlt version: versions of the command line and of the API, here and on the cluster."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from typing import Any

import click

from rlt_api.crd import GROUP, VERSION, custom_resource_definition, runtime_definition
from rlt_cli.kube_context import KubeContext, kube_context_options
from rlt_cli.output import TABLE, emit, emit_table, output_option
from rlt_core.job import Manifest

NOT_INSTALLED = "not installed"


@click.command()
@click.option("--server", is_flag=True, help="Ask the cluster for its own.")
@kube_context_options
@output_option()
def command(server: bool, namespace: str | None, context: str | None, kubeconfig: str | None, output: str) -> None:
    """Show the versions of this program and of its API; with --server also the API that the cluster has.

    Equal schema hashes mean that cluster and program agree on every field and bound.
    """
    definitions = [custom_resource_definition(), runtime_definition()]
    versions: dict[str, Any] = {
        "client": importlib.metadata.version("rlt-operator"),
        "api": f"{GROUP}/{VERSION}",
        "schema": schema_hash(definitions),
    }
    if server:
        names = [definition["metadata"]["name"] for definition in definitions]
        installed = _installed(names, KubeContext(namespace, context, kubeconfig))
        versions["serverSchema"] = schema_hash(installed) if installed else NOT_INSTALLED
    if output == TABLE:
        emit_table(("WHAT", "VERSION"), versions.items())
    else:
        emit(versions, output)


def schema_hash(definitions: list[Manifest]) -> str:
    """Twelve characters that stand for what the CRDs accept."""
    schemas = [version["schema"] for definition in definitions for version in definition["spec"]["versions"]]
    schemas = json.loads(json.dumps(schemas), parse_float=_as_stored)
    return hashlib.sha256(json.dumps(schemas, sort_keys=True).encode()).hexdigest()[:12]


def _as_stored(number: str) -> float:
    """The API server stores 1.0 as 1."""
    return int(float(number)) if float(number).is_integer() else float(number)


def _installed(names: list[str], place: KubeContext) -> list[Manifest] | None:
    """The cluster's CRDs; None if one is missing."""
    from rlt_cli.connection import connected, run  # the Kubernetes client, for --server alone

    async def ask() -> list[Manifest | None]:
        async with connected(place) as connection:
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            return [await connection.api.get(f"{path}/{name}") for name in names]

    found = run(ask())
    return [each for each in found if each] if all(found) else None
