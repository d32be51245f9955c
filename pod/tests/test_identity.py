"""Credentials of a pod: keys of a Secret, or those that the services of AWS give to a service account or node."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from rlt_pod.download.identity import find_keys
from rlt_pod.download.signature import Keys

FOUND = Keys("id", "secret", "session", "eu-west-3")
JSON = json.dumps({"AccessKeyId": "id", "SecretAccessKey": "secret", "Token": "session", "Expiration": "2030-01-01"})
XML = (
    '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
    "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>id</AccessKeyId><SecretAccessKey>secret"
    "</SecretAccessKey><SessionToken>session</SessionToken></Credentials></AssumeRoleWithWebIdentityResult>"
    "</AssumeRoleWithWebIdentityResponse>"
)
REGION = {"AWS_REGION": "eu-west-3"}


class Services(BaseHTTPRequestHandler):
    """STS, the agent of Pod Identity, and the metadata service of a node."""

    def do_POST(self) -> None:
        body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        valid = body["WebIdentityToken"] == ["token"] and body["RoleArn"] == ["arn:aws:iam::1:role/rlt"]
        self.answer(XML if valid and body["Action"] == ["AssumeRoleWithWebIdentity"] else None)

    def do_PUT(self) -> None:
        self.answer("session-of-node" if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else None)

    def do_GET(self) -> None:
        roles = "/latest/meta-data/iam/security-credentials/"
        if self.path == "/agent":
            self.answer(JSON if self.headers["Authorization"] == "token" else None)
        elif self.headers["X-aws-ec2-metadata-token"] == "session-of-node" and self.path.startswith(roles):
            self.answer({"": "node-role", "node-role": JSON}.get(self.path.removeprefix(roles)))
        else:
            self.answer(None)

    def answer(self, text: str | None) -> None:
        self.send_response(403 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def services() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Services)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def token(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text("token\n")
    return str(file)


def test_keys_of_a_secret_come_first(services: str, token: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "s", "AWS_WEB_IDENTITY_TOKEN_FILE": token}
    assert find_keys({**REGION, **keys}) == Keys("own", "s", "", "eu-west-3")


def test_the_role_of_a_service_account(services: str, token: str) -> None:
    variables = {
        **REGION,
        "AWS_ENDPOINT_URL_STS": services,
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/rlt",
        "AWS_WEB_IDENTITY_TOKEN_FILE": token,
    }
    assert find_keys(variables) == FOUND
    with pytest.raises(OSError, match="403"):
        find_keys({**variables, "AWS_ROLE_ARN": "arn:aws:iam::1:role/other"})


def test_pod_identity(services: str, token: str) -> None:
    variables = {**REGION, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{services}/agent"}
    assert find_keys({**variables, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token}) == FOUND
    assert find_keys({**variables, "AWS_CONTAINER_AUTHORIZATION_TOKEN": "token"}) == FOUND


def test_the_role_of_a_node(services: str) -> None:
    assert find_keys({**REGION, "AWS_EC2_METADATA_SERVICE_ENDPOINT": services}) == FOUND
    assert find_keys({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}) is None
