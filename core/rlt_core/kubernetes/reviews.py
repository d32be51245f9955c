"""Whose bearer token a request has, and what this person may read. The API server decides both."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rlt_api.schema.crd import GROUP, PLURAL
from rlt_core.job import Manifest
from rlt_core.kubernetes.client import ApiError, KubernetesApi

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CACHE_S = 5.0
"""Time for which a result holds. A revoked token or right ends after it."""
MAX_CACHED = 10_000
UNKNOWN_PER_S = 50.0
"""Unknown tokens that the API server reviews in a second, besides a burst of as many. Known ones are not limited."""
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,16384}=*")
"""A bearer token: RFC 6750, section 2.1."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Person:
    """The user of a token, as TokenReview returns it."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass
class Reviews:
    """Asks the API server, and keeps results for CACHE_S. Methods raise ApiError if it does not respond.

    `authenticate` raises it with status 429 if too many unknown tokens arrive.
    """

    api: KubernetesApi
    audience: str = ""
    """The audience that a token must have. Empty: the API server's."""

    def __post_init__(self) -> None:
        self._persons = _Cache[Person]()
        self._rejected = _Cache[bool]()
        self._unknown = _Budget(UNKNOWN_PER_S)
        self._allowed = _Cache[bool]()

    async def authenticate(self, token: str) -> Person | None:
        """The person of a token. None if the API server rejects it."""
        if not TOKEN.fullmatch(token):
            return None
        key = hashlib.sha256(token.encode()).digest()
        now = time.monotonic()
        if (known := self._persons.get(key, now)) is not None:
            return known
        if self._rejected.get(key, now):
            return None
        if key not in self._persons.entries and not self._unknown.spend(now):
            raise ApiError(429, "too many unknown tokens: retry in a second")
        spec = {"token": token, **({"audiences": [self.audience]} if self.audience else {})}
        reviewed = await self.api.create(TOKEN_REVIEWS, _review("authentication.k8s.io/v1", "TokenReview", spec))
        person = find_person(reviewed.get("status", {}), self.audience)
        if person is None:
            self._rejected.put(key, now, True)
        else:
            self._persons.put(key, now, person)
        return person

    async def may_list(self, person: Person, namespace: str) -> bool:
        """Whether `kubectl get rltrainingjobs -n NAMESPACE` would show the jobs."""
        return await self._may_read_jobs(person, {"verb": "list", "namespace": namespace})

    async def may_get(self, person: Person, namespace: str, name: str) -> bool:
        """Whether `kubectl get rltrainingjobs NAME -n NAMESPACE` would show the job."""
        return await self._may_read_jobs(person, {"verb": "get", "namespace": namespace, "name": name})

    async def may_get_path(self, person: Person, path: str) -> bool:
        """Whether the person has the verb get on a path that is not a resource, such as /metrics."""
        return await self._may(person, {"nonResourceAttributes": {"verb": "get", "path": path}})

    async def _may_read_jobs(self, person: Person, attributes: dict[str, str]) -> bool:
        return await self._may(person, {"resourceAttributes": {"group": GROUP, "resource": PLURAL, **attributes}})

    async def _may(self, person: Person, attributes: dict[str, dict[str, str]]) -> bool:
        key = (person, *((kind, *sorted(values.items())) for kind, values in attributes.items()))
        now = time.monotonic()
        if (known := self._allowed.get(key, now)) is not None:
            return known
        spec = {
            "user": person.username,
            "uid": person.uid,
            "groups": list(person.groups),
            "extra": {name: list(values) for name, values in person.extra},
            **attributes,
        }
        review = _review("authorization.k8s.io/v1", "SubjectAccessReview", spec)
        reviewed = await self.api.create(ACCESS_REVIEWS, review)
        allowed = reviewed.get("status", {}).get("allowed") is True
        self._allowed.put(key, now, allowed)
        return allowed


def find_person(status: Manifest, audience: str) -> Person | None:
    """The user in the status of a TokenReview. None if the token is invalid, or not for the audience.

    An authenticator that does not know audiences returns none in the status
    (https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-review-v1/).
    """
    user = status.get("user") or {}
    is_for_audience = not audience or audience in (status.get("audiences") or ())
    if status.get("authenticated") is not True or not user.get("username") or not is_for_audience:
        return None
    extra = sorted((name, tuple(values or ())) for name, values in (user.get("extra") or {}).items())
    return Person(user["username"], user.get("uid") or "", tuple(user.get("groups") or ()), tuple(extra))


def _review(version: str, kind: str, spec: Manifest) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {}, "spec": spec}


class _Budget:
    """A token bucket."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = time.monotonic()

    def spend(self, now: float) -> bool:
        """Whether one more is within the budget."""
        self._left = min(self._per_second, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass
class _Cache(Generic[Value]):
    """Values for CACHE_S, at most MAX_CACHED of them: the oldest are dropped."""

    entries: dict[Hashable, tuple[float, Value]] = field(default_factory=dict)

    def get(self, key: Hashable, now: float) -> Value | None:
        since, value = self.entries.get(key, (float("-inf"), None))
        return value if now - since < CACHE_S else None

    def put(self, key: Hashable, since: float, value: Value) -> None:
        self.entries.pop(key, None)  # the latest is last
        self.entries[key] = since, value
        if len(self.entries) > MAX_CACHED:
            del self.entries[next(iter(self.entries))]
