"""What is wrong with a kubeconfig, in one sentence. The Kubernetes client raises exceptions of its parser instead."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

TYPES = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "a boolean"}

LISTS = ("clusters", "contexts", "users")
"""The lists of a kubeconfig, each of which may be in another file of KUBECONFIG."""


def find_kubeconfig_problem(files: Sequence[Path], context: str | None) -> str | None:
    """Why the existing files are not a kubeconfig with a usable context. None without a problem that is known here."""
    configs: dict[Path, dict[str, Any]] = {}
    for file in files:
        if not file.exists():
            continue
        try:
            content = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
        except OSError as error:
            return f"{file}: {error.strerror}"
        except UnicodeDecodeError:
            return f"{file} is not a kubeconfig: it is not a text"
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            return f"{file} is not YAML{f': line {mark.line + 1}' if mark else ''}"
        if not isinstance(content, dict):
            what = "empty" if content is None else f"{TYPES.get(type(content), 'not an object')}, not a kubeconfig"
            return f"{file} is {what}"
        configs[file] = content
    return _find_missing_list(configs) or _find_missing_plugin(configs, context)


def _find_missing_list(configs: Mapping[Path, Mapping[str, Any]]) -> str | None:
    """A list of LISTS that no file has, or that is not a list."""
    for key in LISTS:
        given = {file: config[key] for file, config in configs.items() if config.get(key) is not None}
        for file, value in given.items():
            if not isinstance(value, list):
                return f"{file}: {key} is {TYPES.get(type(value), 'an object')}, not a list"
        if configs and not given:
            return f"{', '.join(map(str, configs))}: {key} is missing"
    return None


def _find_missing_plugin(configs: Mapping[Path, Mapping[str, Any]], context: str | None) -> str | None:
    """The credential plugin of the context if it is not installed. The client would connect without a credential."""
    current = context or next(
        (each["current-context"] for each in configs.values() if each.get("current-context")), None
    )
    user = next((found.get("user") for _, found in _find(configs, "contexts", current, "context")), None)
    for file, found in _find(configs, "users", user, "user"):
        plugin = found.get("exec")
        if not isinstance(plugin, Mapping) or not isinstance(plugin.get("command"), str):
            continue
        command = plugin["command"]
        if shutil.which(command if "/" not in command else str(file.parent / command)) is None:
            hint = str(plugin.get("installHint") or "").strip()
            return f"{file}: the credential plugin {command} is not installed{f': {hint}' if hint else ''}".rstrip(".")
    return None


def _find(
    configs: Mapping[Path, Mapping[str, Any]], kind: str, name: object, key: str
) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The entries of a list with a name, and their files. The first one counts."""
    for file, config in configs.items():
        entries = config.get(kind)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(key), Mapping):
                yield file, entry[key]
