"""rlt version: show the versions of the CLI and of the API."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from typing import Any

import click

from rlt.kube_context import KubeContext
from rlt_api.schema.crd import GROUP, VERSION, build_job_crd, build_runtime_crd
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, emit_table, output_option
from rlt_core.job import Manifest

NOT_INSTALLED = "not installed"


@click.command()
@click.option("--server", is_flag=True, help="Show the API schema of the cluster, too.")
@kube_context_options
@output_option()
def command(server: bool, kube_context: KubeContext, output: str) -> None:
    """Show the versions of the CLI and of the API.

    With --server, this includes the API schema of the cluster. Equal hashes mean that CLI and cluster agree on every
    field and bound.
    """
    definitions = [build_job_crd(), build_runtime_crd()]
    versions: dict[str, Any] = {
        "client": importlib.metadata.version("rlt"),
        "api": f"{GROUP}/{VERSION}",
        "schema": hash_schemas(definitions),
    }
    if server:
        names = [definition["metadata"]["name"] for definition in definitions]
        installed = _get_installed_definitions(names, kube_context)
        versions["serverSchema"] = hash_schemas(installed) if installed else NOT_INSTALLED
    if output == TABLE:
        emit_table(("WHAT", "VERSION"), versions.items())
    else:
        emit(versions, output)


def hash_schemas(definitions: list[Manifest]) -> str:
    """Twelve hexadecimal characters that depend on the schemas of the CRDs alone."""
    schemas = [version["schema"] for definition in definitions for version in definition["spec"]["versions"]]
    schemas = json.loads(json.dumps(schemas), parse_float=_normalize)
    return hashlib.sha256(json.dumps(schemas, sort_keys=True).encode()).hexdigest()[:12]


def _normalize(number: str) -> float:
    """The API server stores 1.0 as 1."""
    return int(float(number)) if float(number).is_integer() else float(number)


def _get_installed_definitions(names: list[str], kube_context: KubeContext) -> list[Manifest] | None:
    """The CRDs of the cluster. None if one is missing."""
    from rlt_cli.connection import connect, run  # imports the Kubernetes client, which only --server needs

    async def get() -> list[Manifest | None]:
        async with connect(kube_context) as connection:
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            return [await connection.api.get(f"{path}/{name}") for name in names]

    found = run(get())
    return [each for each in found if each] if all(found) else None
