"""A repository on the Hugging Face hub, which gets a model in one commit."""

from __future__ import annotations

import logging
import os
import re
import time
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

from rlt_trainer.publishing.place import PublishError, list_names

_log = logging.getLogger(__name__)

ENDPOINT = "https://huggingface.co"
WAITS_S = (5.0, 30.0)
"""Before the second and the third try. huggingface_hub repeats most requests itself, but not the commit."""
REPLACED = re.compile(r"(?:adapter/.+|(?:model|pytorch_model)(?:-\d+-of-\d+)?\.(?:safetensors|bin)(?:\.index\.json)?)")
"""Files of an earlier version that another version may not have. Other files of the repository are kept."""


class HubRepository:
    """A model repository. `field` is its field in the spec. `token`: default: HF_TOKEN, or the login of the user."""

    def __init__(self, name: str, field: str, *, token: str | None, public: bool, message: str) -> None:
        """`message`: of the commit."""
        endpoint = (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
        self.url = f"{endpoint}/{name}"
        self._api = HfApi(endpoint=endpoint, token=token)
        self._name = name
        self._field = field
        self._public = public
        self._message = message

    def check(self) -> None:
        """Verify that the token belongs to the owner of the repository, or to a member, and may write."""
        try:
            user = self._api.whoami()
        except LocalTokenNotFoundError:
            raise self._reject("has no token", self._name_token_fix("set")) from None
        except Exception as error:  # httpx, or another client in other versions of huggingface_hub
            if _find_status(error) in (401, 403):
                raise self._explain(error) from None
            _log.warning("Whether %s can be written is not known before the end: %s", self.url, _describe(error))
            return
        owner = self._name.partition("/")[0]
        owners = [user.get("name"), *(each.get("name") for each in user.get("orgs", []))]
        if owner.lower() not in {str(each).lower() for each in owners}:
            raise self._reject(f"its token belongs to {owners[0]}, who is not a member of {owner}")
        if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
            raise self._reject("its token can only read", self._name_token_fix("replace"))

    def publish(self, folder: Path) -> str:
        """Commit the files. The hub has files of an interrupted upload already. Return the commit."""
        waits = list(WAITS_S)
        while True:
            try:
                return self._commit(folder)
            except Exception as error:  # as in check
                if not waits or not _can_pass(error):
                    raise self._explain(error) from None
                wait = waits.pop(0)
                _log.warning("%s was not published: %s. It is tried again in %g s.", self.url, _describe(error), wait)
                time.sleep(wait)

    def _commit(self, folder: Path) -> str:
        self._api.create_repo(self._name, private=not self._public, exist_ok=True)
        names = list_names(folder)
        info = self._api.model_info(self._name)
        present = {each.rfilename for each in info.siblings or []}
        stale = sorted(name for name in present.difference(names) if REPLACED.fullmatch(name))
        commit = self._api.create_commit(
            self._name,
            [
                *(CommitOperationAdd(path_in_repo=name, path_or_fileobj=folder / name) for name in names),
                *(CommitOperationDelete(path_in_repo=name) for name in stale),
            ],
            commit_message=self._message,
        )
        return commit.oid

    def _explain(self, error: Exception) -> PublishError:
        match _find_status(error):
            case 401:
                return self._reject("the hub does not accept its token", self._name_token_fix("correct"))
            case 403 | 404:
                return self._reject(f"its token has no right to write there ({_describe(error)})")
            case None if not isinstance(error, ValueError):
                fix = "verify that the pods can reach the hub, or set HF_ENDPOINT in spec.cluster.env to a mirror"
                return self._reject(_describe(error), fix)
            case _ if _can_pass(error):
                return self._reject(_describe(error), "try again later")
            case _:
                return self._reject(_describe(error), "correct the name, or upload the export with `hf upload`")

    def _reject(self, problem: str, fix: str = "") -> PublishError:
        fix = fix or f"{self._name_token_fix('give')} the right to write, or use the name of an owner that it has"
        return PublishError(self._field, self._name, problem, fix)

    def _name_token_fix(self, verb: str) -> str:
        return f"{verb} HF_TOKEN in the Secret {self._field.removesuffix('hub')}secretName"


def _can_pass(error: Exception) -> bool:
    """Whether the same request can succeed later."""
    status = _find_status(error)
    if status is None:
        return not isinstance(error, ValueError)  # as for an invalid name or card
    return status in (408, 429) or status >= 500


def _find_status(error: BaseException | None) -> int | None:
    """The status of the answer that the error, or one of its causes, is about. None: there was no answer."""
    while error is not None:
        if isinstance(error, HfHubHTTPError):
            return int(error.response.status_code)
        error = error.__cause__
    return None


def _describe(error: BaseException) -> str:
    """What went wrong in one line, without the arguments of URLs, which can be signatures."""
    while error.__cause__ is not None and not isinstance(error, HfHubHTTPError):
        error = error.__cause__
    text = str(error)
    if isinstance(error, HfHubHTTPError):
        text = f"HTTP {error.response.status_code} {error.server_message or ''}"
    line = " ".join(re.sub(r"\?\S+", "", text).split())
    return (line or type(error).__name__)[:300].rstrip(" .")
