"""The options of `make release`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from release.options import Options, find_problem, parse_options

OPTIONS = Options("0.1.0", "", "registry.example.com/team", ("operator",), Path(__file__))


def test_empty_variables_of_make_turn_parts_off() -> None:
    options = parse_options(["--version", "0.1.0", "--images", "", "--registry", "", "--key", ""])
    assert options == Options("0.1.0", "", "", (), None)


def test_options_that_work_have_no_problem() -> None:
    assert find_problem(OPTIONS, is_root=True) is None
    assert find_problem(replace(OPTIONS, images=("operator", "trainer-cpu", "trainer-cuda")), is_root=True) is None
    assert find_problem(replace(OPTIONS, images=(), registry=""), is_root=False) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (replace(OPTIONS, images=("operator", "cuda")), ("IMAGES: cuda", "operator or trainer-cpu or trainer-cuda")),
        (replace(OPTIONS, images=("trainer-cpu",)), ("REGISTRY: registry.example.com/team", "add operator to IMAGES")),
        (replace(OPTIONS, registry="https://registry.example.com"), ("REGISTRY: https://", "without")),
        (replace(OPTIONS, key=Path("/no/such.key")), ("COSIGN_KEY: /no/such.key", "cosign generate-key-pair")),
    ],
)
def test_other_options_are_rejected_with_what_to_do(options: Options, words: tuple[str, ...]) -> None:
    problem = find_problem(options, is_root=True)
    assert problem is not None
    assert all(each in problem for each in words), problem


def test_images_need_root() -> None:
    problem = find_problem(OPTIONS, is_root=False)
    assert problem is not None
    assert "IMAGES: operator: a build needs root" in problem
