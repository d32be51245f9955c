"""The files of a repository on the Hugging Face hub, and requests for parts of them: with the standard library."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from fnmatch import fnmatch
from http.client import HTTPMessage, HTTPResponse
from typing import IO, TYPE_CHECKING
from urllib.parse import quote, urlsplit

from rlt_pod.download.data_files import select_data_files
from rlt_pod.download.transfer import DownloadError

if TYPE_CHECKING:
    from collections.abc import Mapping

PATTERNS = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.py")
"""The files of a model that the trainer reads (FILES in rlt_trainer/policy/model_files.py)."""
TIMEOUT_S = 60.0
NO_ACCESS = (401, 403)
REASONS = {
    "GatedRepo": "its owner gives access to some accounts, and the account of HF_TOKEN is not one of them",
    "RepoNotFound": "it does not exist, or is private, and the account of HF_TOKEN has no access",
    "RevisionNotFound": "it does not have this revision",
}
"""Value of the hub's X-Error-Code (huggingface_hub/utils/_http.py) -> what it means."""
SECRET = (
    "Create a Secret with a token that has access, `kubectl create secret generic hub --from-literal=token=hf_...`, "
    "and set spec.cluster.env: [{name: HF_TOKEN, secretKeyRef: {name: hub, key: token}}]."
)


@dataclass(frozen=True)
class Source:
    """A model on the hub, or a data set."""

    name: str
    revision: str = "main"
    is_data_set: bool = False
    config: str | None = None
    """Configuration of the data set; None for its default."""

    @property
    def folder(self) -> str:
        """Name of its folder in huggingface_hub's cache (file_download.py, repo_folder_name)."""
        return f"{'datasets' if self.is_data_set else 'models'}--{self.name.replace('/', '--')}"


@dataclass(frozen=True)
class HubFile:
    """A file of a repository."""

    name: str
    size: int
    etag: str
    """Name of the file in huggingface_hub's cache: the SHA-256 of a large file, or git's SHA-1."""
    is_large: bool
    """Whether `etag` is the SHA-256 of the content."""


@dataclass(frozen=True)
class Repository:
    """A model or data set at one commit."""

    source: Source
    commit: str
    files: tuple[HubFile, ...]


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and does not send the token to another server."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """Return the next request."""
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            following.remove_header("Authorization")
        return following


@dataclass(frozen=True)
class Hub:
    """A hub: HF_ENDPOINT and HF_TOKEN (huggingface_hub/constants.py)."""

    endpoint: str
    token: str | None

    def read_repository(self, source: Source) -> Repository:
        """List the files that the trainer reads. Raises DownloadError, OSError."""
        kind = "datasets" if source.is_data_set else "models"
        path = f"/api/{kind}/{quote(source.name)}/revision/{quote(source.revision, safe='')}?blobs=true"
        with self._open(source, path, f"revision {source.revision}") as response:
            answer = json.load(response)
        names = [each["rfilename"] for each in answer["siblings"]]
        if source.is_data_set:
            read = select_data_files(names, answer.get("cardData") or {}, source.config)
        else:
            read = [each for each in names if any(fnmatch(each, pattern) for pattern in PATTERNS)]
        files = tuple(_parse(each) for each in answer["siblings"] if each["rfilename"] in read)
        return Repository(source, answer["sha"], files)

    def open_file(self, repository: Repository, file: HubFile, start: int) -> HTTPResponse:
        """Request a file from byte `start` on. Raises DownloadError, OSError."""
        source = repository.source
        kind = "/datasets" if source.is_data_set else ""
        path = f"{kind}/{quote(source.name)}/resolve/{repository.commit}/{quote(file.name)}"
        return self._open(source, path, f"file {file.name}", {"Range": f"bytes={start}-"} if start else {})

    def _open(self, source: Source, path: str, what: str, headers: Mapping[str, str] | None = None) -> HTTPResponse:
        request = urllib.request.Request(f"{self.endpoint.rstrip('/')}{path}", headers=dict(headers or {}))
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            response: HTTPResponse = urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            if error.code not in (*NO_ACCESS, 404):
                raise
            code = error.headers.get("X-Error-Code") or ""
            reason = REASONS.get(code, f"the hub answers {error.code} {error.reason}")
            fields = (
                "the name and the revision in spec.data"
                if source.is_data_set
                else "spec.model.path and spec.model.revision"
            )
            fix = SECRET if error.code in NO_ACCESS else f"Check {fields}."
            raise DownloadError(f"{source.name}, {what} cannot be downloaded: {reason}.", fix) from error
        return response


def _parse(sibling: dict[str, object]) -> HubFile:
    large = sibling.get("lfs")
    name = str(sibling["rfilename"])
    if isinstance(large, dict):
        return HubFile(name, int(large["size"]), str(large["sha256"]), True)
    return HubFile(name, int(str(sibling["size"])), str(sibling["blobId"]), False)
