"""The publication in a repository of a hub on loopback: one commit, repeated, interrupted and rejected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_hub import LoopbackHub, loopback_hub

from rlt_trainer.publishing import hub as module
from rlt_trainer.publishing.hub import HubRepository
from rlt_trainer.publishing.place import PublishError

CARD = "---\nlibrary_name: transformers\n---\n\n# A model\n"
FILES = {
    "README.md": CARD.encode(),
    "config.json": b"{}",
    "model-00001-of-00002.safetensors": bytes(range(256)) * 4096,
    "model-00002-of-00002.safetensors": b"\1" * 2**20,
    "model.safetensors.index.json": b"{}",
    "adapter/adapter_model.safetensors": b"\2" * 1000,
}
FIELD = "spec.publish[0].hub"
TOKEN_FIX = "HF_TOKEN in the Secret spec.publish[0].secretName"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    with loopback_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)  # the hub has the LFS API alone
        monkeypatch.setattr(module, "WAITS_S", (0.0, 0.0))
        yield server


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def repository(name: str = "lab/math", *, token: str | None = "write", public: bool = False) -> HubRepository:
    return HubRepository(name, FIELD, token=token, public=public, message="Publish math after 3 steps")


def test_a_model_is_one_commit_and_its_repetition_is_none(hub: LoopbackHub, tmp_path: Path) -> None:
    place = repository()
    place.check()
    assert hub.repositories == {}, "a check creates nothing"
    revision = place.publish(write(tmp_path, FILES))
    stored = hub.repositories["lab/math"]
    assert place.url == f"{hub.endpoint}/lab/math"
    assert (stored.commits[1:], stored.private) == ([revision], True)
    assert {name: stored.files[name] for name in FILES} == FILES
    assert repository().publish(tmp_path) == revision
    assert (len(stored.commits), len(hub.uploads)) == (2, 3)


def test_a_later_model_replaces_the_weights_and_keeps_other_files(hub: LoopbackHub, tmp_path: Path) -> None:
    first = repository(public=True).publish(write(tmp_path / "first", FILES))
    stored = hub.repositories["lab/math"]
    assert stored.private is False
    stored.files["LICENSE"] = b"Apache-2.0"
    later = {"README.md": FILES["README.md"], "config.json": b'{"a": 1}', "model.safetensors": b"\3" * 100}
    second = repository().publish(write(tmp_path / "second", later))
    assert stored.commits[1:] == [first, second]
    assert stored.files == {**later, "LICENSE": b"Apache-2.0", ".gitattributes": stored.files[".gitattributes"]}


@pytest.mark.parametrize("part", ["/objects/", "/commit/", "/preupload/", "/repos/create"])
def test_a_request_that_fails_is_repeated(hub: LoopbackHub, tmp_path: Path, part: str) -> None:
    failed: list[str] = []

    def fail_once(method: str, path: str) -> int:
        if part in path and not failed:
            failed.append(path)
            return 503
        return 0

    hub.fail = fail_once
    revision = repository().publish(write(tmp_path, FILES))
    assert failed
    assert hub.repositories["lab/math"].commits[1:] == [revision]


def test_an_interrupted_upload_leaves_the_earlier_model_and_continues(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITS_S", ())
    first = repository().publish(write(tmp_path, FILES))
    stored = hub.repositories["lab/math"]
    before = dict(stored.files)
    uploaded = len(hub.uploads)
    write(tmp_path, {"model-00001-of-00002.safetensors": b"\4" * 2**20, "config.json": b'{"b": 2}'})
    hub.fail = lambda method, path: 503 if "/commit/" in path else 0
    with pytest.raises(PublishError, match=r"spec.publish\[0\].hub: lab/math: HTTP 503 try again; .*try again later"):
        repository().publish(tmp_path)
    assert (stored.commits[1:], stored.files) == ([first], before)
    assert len(hub.uploads) == uploaded + 1
    hub.fail = lambda method, path: 0
    second = repository().publish(tmp_path)
    assert stored.commits[1:] == [first, second]
    assert len(hub.uploads) == uploaded + 1, "the weights were there"


@pytest.mark.parametrize(
    ("name", "token", "problem", "fix"),
    [
        ("lab/math", "wrong", "the hub does not accept its token", f"correct {TOKEN_FIX}"),
        ("lab/math", "read", "its token can only read", f"replace {TOKEN_FIX}"),
        ("other/math", "write", "its token belongs to ada, who is not a member of other", f"give {TOKEN_FIX}"),
    ],
)
def test_the_check_before_the_training_names_field_value_and_fix(
    hub: LoopbackHub, name: str, token: str, problem: str, fix: str
) -> None:
    with pytest.raises(PublishError) as caught:
        repository(name, token=token).check()
    assert str(caught.value).startswith(f"{FIELD}: {name}: {problem}; {fix}")
    assert "secret" not in str(caught.value).replace("secretName", "")


def test_without_a_token_the_check_asks_for_one(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(PublishError, match=r"lab/math: has no token; set HF_TOKEN in the Secret"):
        repository(token=None).check()


def test_a_hub_that_does_not_answer_is_not_an_error_before_the_training(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    place = repository()
    place.check()
    assert "is not known before the end" in caplog.text
    with pytest.raises(PublishError, match=r"verify that the pods can reach the hub, or set HF_ENDPOINT"):
        place.publish(write(tmp_path, FILES))


def test_a_token_without_the_right_to_write_publishes_nothing(hub: LoopbackHub, tmp_path: Path) -> None:
    with pytest.raises(PublishError, match=r"lab/math: its token has no right to write there \(HTTP 403"):
        repository(token="read").publish(write(tmp_path, FILES))
    assert hub.repositories == {}


def test_a_card_that_the_hub_rejects_publishes_nothing(hub: LoopbackHub, tmp_path: Path) -> None:
    files = {**FILES, "README.md": b"---\n- a list\n---\n"}
    with pytest.raises(PublishError, match=r"HTTP 400 repo card metadata .*; correct the name, or upload"):
        repository().publish(write(tmp_path, files))
    assert hub.repositories["lab/math"].commits[1:] == []
    assert hub.uploads == []
