"""The protocol between the driver and the server in a sandbox pod.

A frame is a length of four bytes (big-endian) and a JSON object. The driver connects, the server sends {"nonce"}, and
the driver {"proof"}, so that the key is not sent. The server answers {"pod"}, and then belongs to this connection. The
end of the connection is the end of the pod. Contents of files, pipes and bodies are Base64.

The driver sends one request at a time, and the server one {"answer"} to each:

| request | answer |
|---|---|
| {"run": {"command", "stdin", "variables"}} | {"output", "exitCode", "problem"} |
| {"put": {"path", "content"}} | {"problem"} |
| {"get": {"path"}} | {"content"}, null without such a file |
| {"list": {}} | {"files": [{"path", "size"}]}: regular files, the newest first |
| {"start": {"name", "command", "variables"}} | {"problem"}: the program runs on. An earlier one of the name ends |
| {"talk": {"name", "content", "seconds"}} | {"output", "left", "problem"}: PipedProgram.talk |
| {"openApi": {"maxBody"}} | {"port"} |

{"stop"} ends the program that runs. After openApi, programs send HTTP requests to the port on 127.0.0.1. For each, the
server sends {"request": number, "method", "path", "keys", "body"}, at most MAX_REQUESTS at a time, and the driver
{"response": number, "status", "contentType", "body"}. {"cancel": number} withdraws a request whose client has
disconnected.
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
MAX_FILE = 16 * 2**20
"""Maximum size of a file that put writes or get reads, in bytes."""
MAX_READ = 2**16
"""Maximum number of bytes in the output of a talk. The rest waits in the pipe of the program."""
MAX_REQUESTS = 8
"""Maximum number of requests for the policy's API in progress. Further ones wait in the sandbox."""
HEADER = struct.Struct(">I")


class ProtocolError(Exception):
    """The other side sent something else than a frame, or a frame at the wrong time."""


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
