"""Whether the models and data sets of the job can be read from the Hugging Face hub, or are in its cache.

The variables are huggingface_hub's (constants.py, utils/_auth.py). The hub explains its answers in the header
X-Error-Code (utils/_http.py).
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rlt_pod.preflight.expected import Repository

TIMEOUT_S = 10.0
ENDPOINT = "https://huggingface.co"
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
TRUE = ("1", "ON", "YES", "TRUE")
NO_CONFIG = "EntryNotFound"
REASONS = {
    "GatedRepo": "its owner gives access to some accounts, and the account of HF_TOKEN is not one of them",
    "RepoNotFound": "it does not exist, or is private, and the account of HF_TOKEN has no access",
    "RevisionNotFound": "it does not have the revision",
    NO_CONFIG: "it has no config.json: not a Transformers model",
}
"""Value of X-Error-Code -> what it means."""


@dataclass(frozen=True)
class HubProblem:
    """Why a repository cannot be read."""

    repository: str
    reason: str
    is_certain: bool
    """Whether the program will fail. A hub that does not respond may do so later, and vLLM reads other formats."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are answers: the token must not reach another server."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        """Do not follow."""


def find_hub_problems(repositories: Sequence[Repository], environment: Mapping[str, str]) -> list[HubProblem]:
    """Return the problems of all repositories."""
    found = [_find_problem(each, environment) for each in repositories]
    return [each for each in found if each is not None]


def _find_problem(repository: Repository, environment: Mapping[str, str]) -> HubProblem | None:
    folder = f"{repository.kind}s--{repository.name.replace('/', '--')}"
    cache = _find_cache(environment)
    if any((cache / folder / "snapshots").glob("*/*")):
        return None
    if any(environment.get(name, "").upper() in TRUE for name in OFFLINE):
        return HubProblem(repository.name, f"the hub is offline, and {cache / folder} has no files", True)
    try:
        _ask(repository, environment)
    except urllib.error.HTTPError as error:
        code = error.headers.get("X-Error-Code") or ""
        if error.code in (301, 302, 303, 307, 308):
            return None
        reason = REASONS.get(code, f"the hub answers {error.code} {error.reason}")
        return HubProblem(repository.name, reason, error.code in (401, 403, 404) and code != NO_CONFIG)
    except (OSError, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        return HubProblem(repository.name, f"the hub cannot be reached: {cause}", False)
    return None


def _ask(repository: Repository, environment: Mapping[str, str]) -> None:
    """Request the headers of a model's config, or of a data set's description."""
    endpoint = environment.get("HF_ENDPOINT") or ENDPOINT
    name = quote(repository.name)
    revision = quote(repository.revision or "main", safe="")
    path = f"{name}/resolve/{revision}/config.json"
    if repository.kind == "dataset":
        path = f"api/datasets/{name}/revision/{revision}"
    request = urllib.request.Request(f"{endpoint.rstrip('/')}/{path}", method="HEAD")
    token = _read_token(environment)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S):
        pass


def _find_cache(environment: Mapping[str, str]) -> Path:
    home = environment.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    return Path(environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub")


def _read_token(environment: Mapping[str, str]) -> str | None:
    given = environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN")
    if given:
        return given.strip()
    home = environment.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    try:
        return Path(environment.get("HF_TOKEN_PATH") or f"{home}/token").read_text().strip() or None
    except OSError:
        return None
