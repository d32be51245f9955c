"""A repository in an OCI registry. The tag of the image is written last."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from rlt_trainer.publishing.image import MANIFEST_TYPE, Blob, Image, build_image
from rlt_trainer.publishing.place import PublishError
from rlt_trainer.publishing.registry_client import Answer, LoginError, RegistryClient

_log = logging.getLogger(__name__)
R = TypeVar("R")

TAG = "latest"
WAITS_S = (5.0, 30.0)
"""Before the second and the third try."""
NO_BODY = {"Content-Length": "0"}
NO_REGISTRY = "use the host of an OCI registry, and a repository that exists if the registry creates none"
UNREACHABLE = "verify that the pods can reach it, and trust its certificate (SSL_CERT_FILE in spec.cluster.env)"


class AnswerError(Exception):
    """A registry does not do what is asked."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"status {answer.status} {_read_error(answer.body)}".strip())
        self.status = answer.status

    @property
    def can_pass(self) -> bool:
        """Whether the same request can succeed later."""
        return self.status in (408, 429) or self.status >= 500


class ImageRepository:
    """A repository with images of models. `field` is its field in the spec."""

    def __init__(self, url: str, field: str, docker_config: str | None) -> None:
        """`url`: oci://HOST/NAME[:TAG]. `docker_config`: the content of .dockerconfigjson in the Secret."""
        self.url = url
        self._field = field
        host, _, path = url.removeprefix("oci://").partition("/")
        repository, _, tag = path.partition(":")
        self._manifest = f"manifests/{tag or TAG}"
        credentials = find_credentials(docker_config or "{}", f"{host}/{repository}")
        self._client = RegistryClient(host, repository, credentials)
        self._missing = (
            None if credentials else f"it needs a user and password, which .dockerconfigjson lacks for {host}"
        )

    def check(self) -> None:
        """Begin an upload and cancel it."""
        self._client.send("DELETE", self._repeat(self._begin_upload))

    def publish(self, folder: Path) -> str:
        """Upload the blobs that the registry does not have, and then the manifest. Return the digest of the image."""
        image = build_image(folder)
        if self._repeat(self._find_digest) != image.digest:
            for blob in image.blobs:
                self._repeat(partial(self._upload, blob))
            self._repeat(partial(self._tag, image))
        return image.digest

    def _find_digest(self) -> str | None:
        """The digest of the tag, if the registry has it."""
        found = self._client.send("HEAD", self._manifest, headers={"Accept": MANIFEST_TYPE})
        if found.status != 404:
            _expect(found, 200)
        return found.headers.get("Docker-Content-Digest")

    def _tag(self, image: Image) -> None:
        headers = {"Content-Type": MANIFEST_TYPE, "Content-Length": str(len(image.manifest))}
        _expect(self._client.send("PUT", self._manifest, lambda: [image.manifest], headers), 201)

    def _upload(self, blob: Blob) -> None:
        if self._client.send("HEAD", f"blobs/{blob.digest}").status < 400:  # it may redirect to its storage
            return
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        sent = self._client.send("PATCH", self._begin_upload(), blob.read, headers)
        location = _find_location(sent)
        end = f"{location}{'&' if '?' in location else '?'}digest={blob.digest}"
        _expect(self._client.send("PUT", end, headers=NO_BODY), 201)

    def _begin_upload(self) -> str:
        return _find_location(self._client.send("POST", "blobs/uploads/", headers=NO_BODY))

    def _repeat(self, action: Callable[[], R]) -> R:
        """Repeat an action that fails for a reason that can pass. Raises PublishError."""
        waits = list(WAITS_S)
        while True:
            try:
                return action()
            except (OSError, AnswerError, LoginError) as error:
                can_pass = error.can_pass if isinstance(error, AnswerError) else isinstance(error, OSError)
                if not waits or not can_pass:
                    raise self._explain(error) from None
                wait = waits.pop(0)
                _log.warning("%s: %s. It is tried again in %g s.", self.url, _describe(error), wait)
                time.sleep(wait)

    def _explain(self, error: Exception) -> PublishError:
        if isinstance(error, LoginError):
            return self._reject(_describe(error), self._fix("correct"))
        match error.status if isinstance(error, AnswerError) else None:
            case None:
                return self._reject(_describe(error), UNREACHABLE)
            case 401:
                problem = self._missing or f"its credentials are not accepted ({error})"
                return self._reject(problem, self._fix("correct"))
            case 403:
                return self._reject(f"its credentials cannot push ({error})", self._fix("give the right to push to"))
            case 413:
                return self._reject(_describe(error), "raise the limit of the registry, or of the proxy before it")
            case status if status == 429 or status >= 500:
                return self._reject(_describe(error), "try again later")
            case _:
                return self._reject(f"it does not accept images ({error})", NO_REGISTRY)

    def _reject(self, problem: str, fix: str) -> PublishError:
        return PublishError(self._field, self.url, problem, fix)

    def _fix(self, verb: str) -> str:
        return f"{verb} the Secret {self._field.removesuffix('registry')}secretName"


def find_credentials(docker_config: str, repository: str) -> str | None:
    """Return user:password of the most specific entry for HOST/NAME. None: there is none.

    https://kubernetes.io/docs/concepts/containers/images/#config-json
    """
    try:
        entries = json.loads(docker_config)["auths"]
        found = {
            key.removeprefix("https://").removeprefix("http://").rstrip("/"): each for key, each in entries.items()
        }
        key = max((key for key in found if f"{repository}/".startswith(f"{key}/")), key=len)
        entry = found[key]
        return (
            base64.b64decode(entry["auth"], validate=True).decode()
            if entry.get("auth")
            else f"{entry['username']}:{entry['password']}"
        )
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return None


def _find_location(answer: Answer) -> str:
    """The URL for the next request of an upload."""
    _expect(answer, 202)
    location: str | None = answer.headers.get("Location")
    if location is None:
        raise AnswerError(answer)
    return location


def _expect(answer: Answer, status: int) -> None:
    if answer.status != status:
        raise AnswerError(answer)


def _read_error(body: bytes) -> str:
    """The code and message of an answer with an error."""
    try:
        (first, *_) = json.loads(body)["errors"]
        return " ".join(f"{first['code']} {first.get('message', '')}".split())[:200]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _describe(error: Exception) -> str:
    return " ".join(str(error).split())[:300].rstrip(" .") or type(error).__name__
