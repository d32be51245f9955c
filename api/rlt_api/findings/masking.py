"""Plain-text secrets in specs and texts: which values are secrets, and the same values masked. Pure.

A name or the shape of a value shows that it is a secret. A value in another form is not recognized: a job must refer to
Secrets instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

from rlt_api.findings.result_cache import ResultCache

MASK = "***"

SECRET_VARIABLE = re.compile(r"(?:^|_)(?:TOKEN|KEY|PASSWD|PASS|PAT|CREDENTIALS?)\Z|SECRET|PASSWORD|PASSPHRASE")
"""Environment variables with a secret, such as HF_TOKEN, WANDB_API_KEY and DB_PASSWORD."""
SECRET_OPTION = re.compile(
    r"(?:^|[-_.])(?:token|(?:api|access|auth|private|secret|ssh|wandb|hf)[-_]?key|passwd)\Z|secret|password|passphrase",
    re.IGNORECASE,
)
"""Options of programs with a secret, such as --api-key. A --prompt-key is not one."""
NOT_SECRET_NAME = re.compile(
    r".*(FILE|PATH|DIR|NAME|ID|URL|COUNT|LENGTH|TTL|SECONDS)|(.*[-_.])?(PAD|EOS|BOS|UNK|STOP|IMAGE)[-_]TOKEN",
    re.IGNORECASE,
)
"""Names of something else about a secret, such as SECRET_NAME and PASSWORD_FILE, and of a tokenizer's tokens."""
NOT_SECRET_VALUE = re.compile(r"|[0-9.]{1,6}|true|false|none|null|[/~.].*|\$[({]?\w+[)}]?|<.*>|\*+", re.IGNORECASE)
"""Values that are a switch, a number, a path, a reference to a variable, a placeholder or masked."""

TOKEN = re.compile(
    r"""\b(?:
        hf_[A-Za-z0-9]{16,}                        # Hugging Face
      | sk-[A-Za-z0-9_-]{16,}                      # OpenAI, Anthropic
      | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | glpat-[\w-]{16,}
      | (AKIA|ASIA)[A-Z0-9]{16}                    # AWS
      | AIza[\w-]{30,} | ya29\.[\w-]{20,}          # Google
      | xox[abeoprs]-[\w-]{10,}                    # Slack
    ) | (?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,}  # JSON Web Token
    """,
    re.X,
)
"""Tokens with a recognizable shape."""
VALUE = r"""(?P<secret>"[^"\n]+"|'[^'\n]+'|[^\s"',;&|-][^\s"',;&|]*)"""
IN_TEXT = (
    re.compile(rf"(?P<before>(?<![\w.-])(?P<name>[A-Z][A-Z0-9_]*)=){VALUE}"),
    re.compile(rf"(?P<before>(?<![\w.-])(?P<name>[+]{{0,2}}[a-z][\w.]*)=){VALUE}"),
    re.compile(rf"(?P<before>(?<![\w-])(?P<name>--[A-Za-z][\w-]*)(?:=|[ ]+)){VALUE}"),
    re.compile(r"(?P<before>\bBearer )(?P<secret>[\w.~+/-]{8,}=*)"),
    re.compile(r"(?P<before>://[^/\s:@]*:)(?P<secret>[^/\s@]+)(?=@)"),
)
"""Places of secrets in a text. Without a group `name`, every match is a secret."""
MAX_DEPTH = 150
"""Maximum nesting of a manifest. Validation rejects a spec that nests deeper than 100 levels."""
MIN_KNOWN_LENGTH = 6
"""Minimum length of a known secret that is masked anywhere in a text: shorter ones are parts of other words."""
MAX_SEARCHED = 4096
"""Number of characters that are searched in each string of a spec. The operator searches on its event loop."""

_has_secrets = ResultCache[bool](4096)
"""Whether a text has secrets. The secrets themselves are not kept."""


def is_secret(name: str, value: str) -> bool:
    """Return whether the value of a variable or option is a secret, by its name or by the shape of the value."""
    if TOKEN.search(value):
        return True
    pattern = SECRET_VARIABLE if name.isupper() else SECRET_OPTION
    named = pattern.search(name.lstrip("-+")) and not NOT_SECRET_NAME.fullmatch(name)
    return bool(named) and not NOT_SECRET_VALUE.fullmatch(value)


def mask_text(text: str, known: Collection[str] = ()) -> str:
    """Return the text with its secrets masked, and with each of the known secrets."""
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= MIN_KNOWN_LENGTH:
            text = text.replace(secret, MASK)
    text = TOKEN.sub(MASK, text)
    for pattern in IN_TEXT:
        text = pattern.sub(_mask_match, text)
    return text


def _mask_match(match: re.Match[str]) -> str:
    found = match.groupdict()
    secret = found["secret"].strip("\"'")
    if "name" in found and not is_secret(found["name"], secret):
        return match[0]
    return found["before"] + MASK


def mask_json(value: Any, depth: int = 0) -> Any:
    """Return a manifest or a part of it with its secrets masked. The input is not changed.

    What is nested deeper than MAX_DEPTH is masked as a whole.
    """
    if isinstance(value, str):
        return _mask_string(value)
    if depth == MAX_DEPTH:
        return MASK
    if isinstance(value, list):
        return [mask_json(each, depth + 1) for each in _mask_options(value)]
    if not isinstance(value, Mapping):
        return value
    masked = {key: mask_json(each, depth + 1) for key, each in value.items()}
    if is_variable(value) and is_secret(value["name"], value["value"]):
        masked["value"] = MASK
    return masked


def find_in_text(text: str) -> tuple[str, ...]:
    """Return the secrets in the first MAX_SEARCHED characters of a text, each once.

    The operator searches the texts of a spec again and again, and most have no secret: this result is cached.
    """
    text = text[:MAX_SEARCHED]
    return _search(text) if _has_secrets.get(text, lambda: bool(_search(text))) else ()


def _search(text: str) -> tuple[str, ...]:
    secrets = [match[0] for match in TOKEN.finditer(text)]
    matches = (match for pattern in IN_TEXT for match in pattern.finditer(text))
    secrets += [match["secret"].strip("\"'") for match in matches if _mask_match(match) != match[0]]
    return tuple(secret for secret in dict.fromkeys(secrets) if secret != MASK)


def is_variable(value: Mapping[str, Any]) -> bool:
    """Whether it is an item of env: a name and a plain value."""
    return isinstance(value.get("name"), str) and isinstance(value.get("value"), str)


def find_options(arguments: list[Any]) -> dict[int, str]:
    """Index of each argument that is the secret value of the option before it -> the option."""
    return {
        index: option
        for index, (option, value) in enumerate(pairwise(arguments), start=1)
        if isinstance(option, str)
        and isinstance(value, str)
        and re.fullmatch("--?[A-Za-z][A-Za-z0-9_-]*", option)
        and not value.startswith("-")
        and is_secret(option, value)
    }


def _mask_options(arguments: list[Any]) -> list[Any]:
    options = find_options(arguments)
    return [MASK if index in options else each for index, each in enumerate(arguments)]


def _mask_string(text: str) -> str:
    """Mask a text. JSON in it, as in the annotation of `kubectl apply`, is masked as JSON."""
    if text.startswith("{"):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            return mask_text(text)
        masked = mask_json(parsed)
        return text if masked == parsed else json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
    return mask_text(text)
