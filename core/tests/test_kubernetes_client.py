"""The Kubernetes client against a local HTTP server: responses, errors, streams and an expired credential."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client
from multidict import CIMultiDict

from rlt_core.kubernetes.client import ApiError, KubernetesApi, UnknownResourceError

NOT_FOUND = {"message": 'jobs "x" not found', "details": {"name": "x"}}


async def respond(request: web.Request) -> web.StreamResponse:
    match request.path:
        case "/found":
            return web.json_response({"kind": "Job", "query": dict(request.query)})
        case "/missing":
            return web.json_response(NOT_FOUND, status=404)
        case "/unknown":
            return web.json_response({"message": "the server could not find the resource"}, status=404)
        case "/rejected":
            return web.json_response({"message": "the spec is invalid"}, status=422)
        case "/strict":
            cause = 'strict decoding error: unknown field "status.later"'
            return web.json_response({"message": f'"" is invalid: patch: Invalid value: "{{}}": {cause}'}, status=422)
        case "/expired":
            status = 200 if request.headers.get("Authorization") == "Bearer new" else 401
            return web.json_response({}, status=status)
        case "/echo":
            body = {"type": request.content_type, "body": await request.json(), "query": dict(request.query)}
            return web.json_response(body)
        case "/warned":
            warnings = [("Warning", '299 - "the \\"old\\" field is deprecated"'), ("Warning", '299 - "unknown field"')]
            return web.json_response({}, headers=CIMultiDict(warnings))
        case "/log":
            return web.Response(text="first\nsecond\nthe end")
    return web.Response(status=500, text="broken")


@pytest.fixture
async def host() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def build_client(host: str, token: str = "old") -> Any:
    configuration = client.Configuration(host=host)
    configuration.api_key = {"BearerToken": f"Bearer {token}"}
    return client.ApiClient(configuration)


@pytest.fixture
async def api(host: str) -> AsyncIterator[KubernetesApi]:
    connected = KubernetesApi(build_client(host))
    yield connected
    await connected.close()


async def test_get_returns_the_object_or_none(api: KubernetesApi) -> None:
    found = await api.get("/found")
    assert found
    assert found["kind"] == "Job"
    assert await api.get("/missing") is None
    with pytest.raises(UnknownResourceError, match="could not find the resource"):
        await api.get("/unknown")


async def test_warnings_of_the_api_server_are_reported(api: KubernetesApi) -> None:
    warnings: list[str] = []
    api.on_warning = warnings.append
    await api.send("GET", "/warned")
    assert warnings == ['the "old" field is deprecated', "unknown field"]


async def test_apply_sends_the_manifest_as_field_owner(api: KubernetesApi) -> None:
    status, text = await api.send("PATCH", "/echo", query={"force": "true"}, body={"a": 1}, content="application/json")
    assert (status, json.loads(text)) == (
        200,
        {"type": "application/json", "body": {"a": 1}, "query": {"force": "true"}},
    )
    with pytest.raises(ApiError, match="the spec is invalid") as raised:
        await api.apply("/rejected", {"kind": "Job", "apiVersion": "v1"})
    assert (raised.value.status, raised.value.rejected) == (422, True)
    with pytest.raises(UnknownResourceError, match=r"needs Job \(v1\), which is not installed"):
        await api.apply("/unknown", {"kind": "Job", "apiVersion": "v1"})


async def test_a_patch_sends_its_operations_and_names_an_unknown_field(api: KubernetesApi) -> None:
    """The message of the API server has the whole object first, which a status would be cut to."""
    operations = [{"op": "remove", "path": "/status/message"}]
    assert await api.patch("/echo", operations) == {
        "type": "application/json-patch+json",
        "body": operations,
        "query": {"fieldManager": "rlt-operator", "fieldValidation": "Strict"},
    }
    with pytest.raises(ApiError, match=r'^strict decoding error: unknown field "status.later"$') as raised:
        await api.patch("/strict", operations)
    assert (raised.value.status, raised.value.rejected) == (422, True)
    with pytest.raises(ApiError, match=r"^the spec is invalid$"):
        await api.patch("/rejected", operations)


async def test_an_unreachable_server_is_an_error_with_status_0() -> None:
    api = KubernetesApi(build_client("http://127.0.0.1:1"))
    with pytest.raises(ApiError) as raised:
        await api.send("GET", "/found")
    assert (raised.value.status, raised.value.rejected) == (0, False)
    with pytest.raises(ApiError) as raised:
        await anext(api.stream_lines("/log", {}))
    assert raised.value.status == 0
    await api.close()


async def test_streams_are_split_into_lines(api: KubernetesApi) -> None:
    assert [line async for line in api.stream_lines("/log", {})] == ["first", "second", "the end"]
    with pytest.raises(ApiError, match="broken") as raised:
        await anext(api.stream_lines("/broken", {}))
    assert raised.value.status == 500


async def test_a_rejected_web_socket_is_an_error_with_its_status(api: KubernetesApi) -> None:
    with pytest.raises(ApiError) as raised:
        async with api.web_socket("/missing"):
            pass
    assert raised.value.status == 404


async def test_an_expired_credential_is_renewed_once(host: str) -> None:
    async def renew() -> Any:
        return build_client(host, "new")

    api = KubernetesApi(build_client(host), renew)
    assert (await api.send("GET", "/expired"))[0] == 200
    assert len(api.outdated) == 1
    await api.close()
    without_renewal = KubernetesApi(build_client(host))
    assert (await without_renewal.send("GET", "/expired"))[0] == 401
    await without_renewal.close()
