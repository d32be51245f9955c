"""The protocol between the driver and the server in a sandbox pod.

A frame is a length of four bytes (big-endian) and a JSON object. The driver connects, the server sends {"nonce"}, and
the driver {"proof"}, so that the key is not sent. The server answers {"pod"}, and then belongs to this connection. Each
request {"command", "stdin", "timeoutSeconds"} has one answer {"output", "problem"}. The end of the connection is the
end of the pod.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from typing import Any

PORT = 8091
"""Port of the server."""
KEY_VARIABLE = "RLT_SANDBOX_KEY"
"""The key that the server accepts, in the sandbox pods."""
HOST_VARIABLE = "RLT_SANDBOX_HOST"
"""The DNS name whose addresses are the ready sandbox pods of the job, in the head pod."""
MAX_FRAME = 32 * 2**20
"""Maximum length of a frame in bytes. The longest output is six times as long as JSON."""
HEADER = struct.Struct(">I")


class ProtocolError(Exception):
    """The other side sent something else than a frame."""


def derive_key(ray_token: str) -> str:
    """Derive the key of the sandboxes from the token of Ray (HMAC-SHA256). The token does not follow from it."""
    return hmac.new(ray_token.encode(), b"rlt sandbox", hashlib.sha256).hexdigest()


def prove(key: str, nonce: str) -> str:
    """Prove the knowledge of the key (HMAC-SHA256 of the nonce)."""
    return hmac.new(key.encode(), nonce.encode(), hashlib.sha256).hexdigest()


def encode(message: dict[str, Any]) -> bytes:
    """Encode a frame."""
    content = json.dumps(message).encode()
    return HEADER.pack(len(content)) + content


def read_length(header: bytes, maximum: int = MAX_FRAME) -> int:
    """Read the length of a frame's content. Raises ProtocolError if it is above the maximum."""
    (length,) = HEADER.unpack(header)
    if length > maximum:
        raise ProtocolError(f"a frame of {length} bytes, more than {maximum}")
    return int(length)


def decode(content: bytes) -> dict[str, Any]:
    """Decode the content of a frame. Raises ProtocolError."""
    try:
        message = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a frame that is not JSON") from error
    if not isinstance(message, dict):
        raise ProtocolError("a frame that is not an object")
    return message
