"""The Secret with the key from which the tokens of all Ray clusters are derived."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from dataclasses import dataclass

from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.token_key import KEY_BYTES, TokenKey

FIELD = "key"
"""Key of the Secret's data."""
RETRY_INTERVAL_S = 2.0
"""Interval between attempts to reach the API server."""

log = logging.getLogger("rlt_operator")


@dataclass(frozen=True)
class KeyLocation:
    """The Secret with the key."""

    namespace: str
    name: str


async def load_token_key(api: KubernetesApi, location: KeyLocation | None) -> TokenKey:
    """Read the key, or create it. Without a location, the key is lost when the process ends.

    Raises ApiError if the API server rejects it, and ValueError if the Secret has no key.
    """
    if location is None:
        log.warning("without --ray-token-key, the heads of running jobs cannot be reached after a restart")
        return TokenKey(secrets.token_bytes(KEY_BYTES))
    while True:
        try:
            return await _read_or_create(api, location)
        except ApiError as error:
            if error.rejected:
                raise ApiError(error.status, f"cannot load {location}: {error}") from error
            log.warning("cannot load the key for the tokens of Ray: %s", error)
            await asyncio.sleep(RETRY_INTERVAL_S)


async def _read_or_create(api: KubernetesApi, location: KeyLocation) -> TokenKey:
    path = api_paths.secret(location.namespace, location.name)
    found = await api.get(path)
    if found is None:
        manifest = build_secret(location, secrets.token_bytes(KEY_BYTES))
        found = await api.create(api_paths.collection_of(manifest), manifest)
    return parse_secret(found)


def build_secret(location: KeyLocation, key: bytes) -> Manifest:
    """Build the Secret. It cannot change: another key ends the access to the heads of running jobs."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": location.namespace, "name": location.name},
        "type": "Opaque",
        "immutable": True,
        "data": {FIELD: base64.b64encode(key).decode()},
    }


def parse_secret(secret: Manifest) -> TokenKey:
    """The key in the Secret. Raises ValueError if it has none of KEY_BYTES or more."""
    key = base64.b64decode((secret.get("data") or {}).get(FIELD, ""))
    if len(key) < KEY_BYTES:
        name = secret["metadata"]["name"]
        raise ValueError(f"Secret {name}, key {FIELD!r}: has {len(key)} bytes: delete it, or use {KEY_BYTES} or more")
    return TokenKey(key)
