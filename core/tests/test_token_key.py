"""Tokens that are derived from the key of a release: one for each attempt of each job."""

from __future__ import annotations

from rlt_core import names
from rlt_core.token_key import TokenKey

KEY = TokenKey(b"k" * 32)


def test_each_attempt_of_each_job_has_its_own_token_and_name() -> None:
    derived = [
        derive(uid, attempt)
        for derive in (KEY.derive_token, KEY.derive_suffix, TokenKey(b"other").derive_token)
        for uid in ("a", "b", "a1")
        for attempt in (1, 11, 2)
    ]
    assert len(set(derived)) == len(derived)
    assert KEY.derive_token("a", 1) == TokenKey(b"k" * 32).derive_token("a", 1), "another process derives the same"


def test_a_token_has_256_bits_and_no_special_character() -> None:
    token = KEY.derive_token("a", 1)
    assert len(token) == 43
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_the_attempt_is_read_from_a_name_that_the_key_has_given() -> None:
    name = names.ray_token("sum", attempt=12, suffix=KEY.derive_suffix("a", 12))
    assert KEY.find_attempt(name, "a") == 12
    assert KEY.find_attempt(name, "b") is None
    assert KEY.find_attempt(name.replace("12", "13"), "a") is None
    assert KEY.find_attempt("sum-ray-token-12", "a") is None
    assert KEY.find_attempt(f"sum-ray-token-{'9' * 5000}-{'0' * 16}", "a") is None


def test_the_key_is_not_printed() -> None:
    assert "kkk" not in repr(KEY)
