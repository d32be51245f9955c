"""Plain-text secrets: what is recognized, and that no secret remains in a masked text or manifest."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlt_api.findings.finding import Finding, printable
from rlt_api.findings.masking import MASK, MAX_SEARCHED, find_in_text, is_secret, mask_json, mask_text
from rlt_api.findings.result_cache import ResultCache
from rlt_api.spec.plain_secrets import find_secrets, warn_plain_secrets

HF = "hf_" + "aBcDeFgH" * 4
TOKENS = [
    HF,
    "sk-" + "a1B2" * 8,
    "sk-ant-api03-" + "x" * 20,
    "ghp_" + "a1B2c3D4" * 5,
    "github_pat_" + "1A" * 20,
    "AKIA" + "ABCDEFGH12345678",
    "glpat-" + "a" * 20,
    "xoxb-1234567890-abc",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
]


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MY_SECRET", "SECRETS", "KEY", "TOKEN"),
        *("--api-key", "--hf_token", "--token", "trainer.api_key", "db_password"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name, "hunter22")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_TOKENS", "many"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("AWS_ACCESS_KEY_ID", "mine"),
        ("SECRET_NAME", "wandb"),
        ("PASSWORD_FILE", "x"),
        ("PAD_TOKEN", "pad"),
        ("--eos-token", "end"),
        ("--prompt-key", "question"),
        ("--label_key", "answer"),
        ("data.prompt_key", "question"),
        ("HF_TOKEN", ""),
        ("HF_TOKEN", "/run/secrets/token"),
        ("HF_TOKEN", "$(TOKEN)"),
        ("HF_TOKEN", "${TOKEN}"),
        ("USE_TOKEN", "true"),
        ("N_TOKEN", "512"),
        ("HF_TOKEN", MASK),
    ],
)
def test_other_names_and_values(name: str, value: str) -> None:
    assert not is_secret(name, value)


@pytest.mark.parametrize("token", TOKENS)
def test_tokens_are_recognized_by_their_shape(token: str) -> None:
    assert is_secret("HARMLESS", token)
    for text in (token, f"error: {token}: expired", f'{{"a": "{token}"}}', f"url?key={token}&x", f"({token})"):
        assert token not in mask_text(text)
        assert MASK in mask_text(text)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("export HF_TOKEN=hunter22 && run", "export HF_TOKEN=*** && run"),
        ('WANDB_API_KEY="hunter 22" run', "WANDB_API_KEY=*** run"),
        ("run --api-key hunter22 --steps 8", "run --api-key *** --steps 8"),
        ("run --api-key=hunter22", "run --api-key=***"),
        ("run +trainer.api_key=hunter22", "run +trainer.api_key=***"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        ("https://jane:hunter22@registry.example/x", "https://jane:***@registry.example/x"),
        ("run --api-key --verbose", "run --api-key --verbose"),
        ("KeyError: 'HF_TOKEN'", "KeyError: 'HF_TOKEN'"),
        ("data.prompt_key=question pad_token=x", "data.prompt_key=question pad_token=x"),
        ("step 3: reward=0.5 tokens=512", "step 3: reward=0.5 tokens=512"),
        ("http://127.0.0.1:8265 and a@b", "http://127.0.0.1:8265 and a@b"),
    ],
)
def test_secrets_in_a_text(text: str, masked: str) -> None:
    assert mask_text(text) == masked


def test_known_secrets_are_masked_anywhere() -> None:
    assert mask_text("login failed for 'hunter22'", ["hunter22", "a"]) == "login failed for '***'"


MANIFEST: dict[str, Any] = {
    "metadata": {"annotations": {}},
    "spec": {
        "framework": {"command": ["bash", "-c", "WANDB_API_KEY=hunter1x run", "--token", "hunter2x"]},
        "cluster": {
            "env": [{"name": "HF_TOKEN", "value": "hunter3x"}, {"name": "NCCL_DEBUG", "value": "INFO"}],
            "head": {"podTemplate": {"spec": {"containers": [{"env": [{"name": "A", "value": HF}]}]}}},
        },
        "observability": {"wandb": {"apiKey": {"name": "wandb", "key": "token"}}},
    },
}
SECRETS = ("hunter1x", "hunter2x", "hunter3x", HF)


def with_last_applied() -> dict[str, Any]:
    last_applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(MANIFEST)}
    return {**MANIFEST, "metadata": {"annotations": last_applied}}


def test_no_secret_remains_in_a_manifest() -> None:
    masked = mask_json(with_last_applied())
    assert not [secret for secret in SECRETS if secret in json.dumps(masked)]
    assert masked["spec"]["cluster"]["env"][1] == {"name": "NCCL_DEBUG", "value": "INFO"}
    assert masked["spec"]["observability"] == MANIFEST["spec"]["observability"]
    assert mask_json(masked) == masked


def test_each_secret_is_found_with_its_field() -> None:
    assert [(each.field, each.name, each.value) for each in find_secrets(MANIFEST["spec"], "spec")] == [
        ("spec.framework.command[2]", None, "hunter1x"),
        ("spec.framework.command[4]", "--token", "hunter2x"),
        ("spec.cluster.env[0].value", "HF_TOKEN", "hunter3x"),
        ("spec.cluster.head.podTemplate.spec.containers[0].env[0].value", "A", HF),
    ]
    assert list(find_secrets(mask_json(MANIFEST), "")) == []


def test_a_warning_names_field_and_fix_without_the_secret() -> None:
    warnings = list(warn_plain_secrets(MANIFEST["spec"]))
    assert warnings[2] == (
        "spec.cluster.env[0].value: ***: HF_TOKEN has a plain-text value, which everyone who can read the object can "
        "read; put it in a Secret and use secretKeyRef in spec.cluster.env"
    )
    assert not [secret for secret in SECRETS if secret in "".join(warnings)]


def test_any_depth() -> None:
    """The API server stores more levels than validation allows."""
    deep: Any = HF
    for _ in range(900):
        deep = {"a": [deep]}
    assert HF not in json.dumps(mask_json(deep))
    assert list(find_secrets(deep, "spec")) == []


def test_findings_do_not_repeat_a_secret() -> None:
    assert HF not in printable(f'{{"name": "HF_TOKEN", "value": "{HF}"}}' + "x" * 100)
    assert "hf_" not in printable("x" * 90 + f" {HF}"), "masked before it is truncated"
    assert HF not in str(Finding("spec.cluster.image", printable(HF), "is invalid", "change it"))


@given(st.text())
def test_masking_is_idempotent(text: str) -> None:
    assert mask_text(mask_text(text)) == mask_text(text)


@given(st.sampled_from(TOKENS), st.text("ab=:/ '\"{}[],\n"), st.text("ab=:/ '\"{}[],\n"))
def test_a_token_never_remains(token: str, before: str, after: str) -> None:
    assert token not in mask_text(f"{before} {token} {after}")


def test_only_the_first_characters_of_a_text_are_searched() -> None:
    assert find_in_text(f"{'x ' * 1000}{HF}") == (HF,)
    assert find_in_text(f"{'x ' * (MAX_SEARCHED // 2)}{HF}") == ()


def test_the_cache_keeps_no_input_and_a_bounded_number_of_results() -> None:
    cache = ResultCache[int](2)
    computed: list[str] = []

    def compute(text: str) -> int:
        computed.append(text)
        return len(text)

    for text in ("a" * 10_000, "b", "b", "c", "b", "a" * 10_000):
        assert cache.get(text, functools.partial(compute, text)) == len(text)
    assert computed == ["a" * 10_000, "b", "c", "a" * 10_000]
    assert len(cache) == 2
    assert all(isinstance(key, int) for key in cache._results)
