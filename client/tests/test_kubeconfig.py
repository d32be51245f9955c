"""A broken kubeconfig is one sentence with the file and the cause, and never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlt import Client
from rlt.errors import ClusterError

GOOD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "a",
    "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "users": [{"name": "a", "user": {}}],
}


def with_plugin(command: str) -> dict[str, Any]:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never"}
    return {**GOOD, "users": [{"name": "a", "user": {"exec": plugin}}]}


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "{file} is empty"),
        (b"# nothing\n", "{file} is empty"),
        (b"- a\n", "{file} is a list, not a kubeconfig"),
        (b"text\n", "{file} is a text, not a kubeconfig"),
        (b"a: 1\nb: [\n", "{file} is not YAML: line 3"),
        (b"\xff\xfe\x00", "{file} is not a kubeconfig: it is not a text"),
        (
            yaml.safe_dump(with_plugin("no-such-plugin")).encode(),
            "{file}: the credential plugin no-such-plugin is not installed",
        ),
        (yaml.safe_dump(with_plugin("./plugin")).encode(), "{file}: the credential plugin ./plugin is not installed"),
        (yaml.safe_dump({**GOOD, "users": "x"}).encode(), "{file}: users is a text, not a list"),
        (yaml.safe_dump({**GOOD, "users": {"a": {}}}).encode(), "{file}: users is an object, not a list"),
        (yaml.safe_dump({**GOOD, "users": None}).encode(), "{file}: users is missing"),
        (yaml.safe_dump({**GOOD, "contexts": [{"name": "a", "context": "x"}]}).encode(), "kube"),
        (yaml.safe_dump({**GOOD, "clusters": 3}).encode(), "{file}: clusters is a number, not a list"),
    ],
)
def test_a_broken_kubeconfig_is_one_sentence(tmp_path: Path, content: bytes, cause: str) -> None:
    file = tmp_path / "config"
    file.write_bytes(content)
    with pytest.raises(ClusterError) as caught:
        Client(kubeconfig=str(file))
    assert caught.value.message.startswith("Cannot connect to a cluster: ")
    assert cause.format(file=file) in caught.value.message
    assert "\n" not in caught.value.message


def test_an_installed_plugin_and_a_missing_file_of_several_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugin").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "plugin").chmod(0o755)
    (tmp_path / "config").write_text(yaml.safe_dump(with_plugin("./plugin")))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{tmp_path}/config")
    with Client() as client:
        assert client.namespace == "default"
