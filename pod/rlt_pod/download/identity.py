"""The credentials of a pod for a bucket: keys of a Secret, or temporary ones of the pod's service account or node.

In the order of Amazon's clients: https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen
from xml.etree import ElementTree

from rlt_pod.download.signature import Keys
from rlt_pod.download.transfer import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 5.0
REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
DEFAULT_REGION = "us-east-1"
"""The region of buckets, if none is set: servers other than Amazon's have this one."""
CONTAINER = "http://169.254.170.2"
"""The server of AWS_CONTAINER_CREDENTIALS_RELATIVE_URI."""
NODE = "http://169.254.169.254"
"""The metadata service of a node (IMDSv2)."""


def get_region(environment: Mapping[str, str] = os.environ) -> str:
    """Return the region of the bucket."""
    return next((environment[each] for each in REGION if environment.get(each)), DEFAULT_REGION)


def find_keys(environment: Mapping[str, str]) -> Keys | None:
    """Find the keys of the Secret, or ask for temporary ones. None: the pod has no credentials.

    Raises OSError if a service that the environment names does not answer.
    """
    region = get_region(environment)
    if keys := Keys.find(environment, region=region):
        return keys
    if file := environment.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return _assume_role(environment, Path(file), region)
    full = environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    relative = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    if full or relative:
        return _ask_container(environment, full or f"{CONTAINER}{relative}", region)
    try:
        return _ask_node(environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or NODE, region)
    except OSError as error:
        if isinstance(error, HTTPError) and error.code in TEMPORARY:
            raise
        return None  # not a node of AWS, or without a role


def _assume_role(environment: Mapping[str, str], token: Path, region: str) -> Keys:
    """IAM roles for service accounts: the role of the token that Kubernetes mounts."""
    server = environment.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
    arguments = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": environment.get("AWS_ROLE_ARN", ""),
        "RoleSessionName": environment.get("AWS_ROLE_SESSION_NAME") or "rlt",
        "WebIdentityToken": token.read_text().strip(),
    }
    answer = ElementTree.fromstring(_ask(Request(server, urlencode(arguments).encode(), method="POST")))
    found = answer.find(".//{*}Credentials")
    if found is None:
        raise OSError(f"{server} gives no credentials")
    key_id, secret, session = (
        found.findtext(f"{{*}}{each}", "") for each in ("AccessKeyId", "SecretAccessKey", "SessionToken")
    )
    return Keys(key_id, secret, session, region)


def _ask_container(environment: Mapping[str, str], url: str, region: str) -> Keys:
    """EKS Pod Identity, and tasks of ECS."""
    file = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    token = Path(file).read_text().strip() if file else environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    return _parse(_ask(Request(url, headers={"Authorization": token} if token else {})), region)


def _ask_node(server: str, region: str) -> Keys:
    """The role of the node."""
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
    token = _ask(Request(f"{server}/latest/api/token", headers=lifetime, method="PUT")).decode()
    headers = {"X-aws-ec2-metadata-token": token}
    roles = f"{server}/latest/meta-data/iam/security-credentials/"
    role = _ask(Request(roles, headers=headers)).decode().strip()
    return _parse(_ask(Request(f"{roles}{role}", headers=headers)), region)


def _parse(content: bytes, region: str) -> Keys:
    found: dict[str, Any] = json.loads(content)
    return Keys(found["AccessKeyId"], found["SecretAccessKey"], found["Token"], region)


def _ask(request: Request) -> bytes:
    with urlopen(request, timeout=TIMEOUT_S) as answer:
        content: bytes = answer.read()
    return content
