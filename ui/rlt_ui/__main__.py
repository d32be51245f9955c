"""The page of a cluster: `rlt-ui`, in the Deployment of the chart (values `ui`)."""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
from collections.abc import Callable, Sequence
from functools import partial

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.types import ASGIApp

from rlt.connection import Connection
from rlt.deleted_jobs import OPERATOR_NAMESPACE
from rlt.kube_context import KubeContext
from rlt_core.kubernetes.client import KubernetesApi, connect, connect_with_token
from rlt_core.kubernetes.reviews import Reviews
from rlt_ui.cluster_jobs import ClusterJobs
from rlt_ui.login import SESSIONS, Login, get_reader
from rlt_ui.personal_jobs import PersonalJobs
from rlt_ui.server import build_routes

USER_AGENT = f"rlt-ui/{importlib.metadata.version('rlt')}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run until SIGTERM."""
    asyncio.run(serve(build_parser().parse_args(arguments)))


def build_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(prog="rlt-ui", description="Serve the page of a cluster's jobs.")
    parser.add_argument("--port", type=int, required=True, help="the port, on all addresses")
    parser.add_argument("--namespace", action="append", default=[], help="a namespace with jobs; default: all")
    parser.add_argument(
        "--operator-namespace", default=OPERATOR_NAMESPACE, help="the namespace with the usage of deleted jobs"
    )
    parser.add_argument("--audience", default="", help="the audience of tokens; default: the API server's")
    return parser


async def serve(options: argparse.Namespace) -> None:
    """Serve with the pod's service account, or with KUBECONFIG outside a cluster."""
    api = await connect(USER_AGENT)
    try:
        app = build_app(
            api, options.namespace, options.audience, lambda: server.should_exit, operator=options.operator_namespace
        )
        config = uvicorn.Config(
            app,
            host="",
            port=options.port,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
            ws="none",
        )
        server = uvicorn.Server(config)
        await server.serve()
    finally:
        await api.close()


def build_app(
    api: KubernetesApi,
    namespaces: Sequence[str],
    audience: str,
    is_ending: Callable[[], bool] = lambda: False,
    *,
    operator: str = OPERATOR_NAMESPACE,
) -> ASGIApp:
    """Build the application. `api` has the rights of the server. `operator`: the namespace of the operator."""
    connections = [Connection(api, each, KubeContext()) for each in namespaces or ("default",)]
    jobs = ClusterJobs(connections, all_namespaces=not namespaces)
    reviews = Reviews(api, audience)

    def get_source(request: Request) -> PersonalJobs:
        person, token = get_reader(request)
        return PersonalJobs(jobs, reviews, person, token, partial(connect_with_token, USER_AGENT), operator)

    routes = build_routes(get_source, is_ending)
    # A program sends the token in a header to /api/…; a browser has it in the cookie of its session.
    return Login(Starlette(routes=[Mount(f"{SESSIONS}/{{session}}", routes=routes), *routes]), reviews)


if __name__ == "__main__":
    main()
