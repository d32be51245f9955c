"""The documentation check finds what is wrong, and accepts what is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_docs import ROOT, check_navigation, check_page, check_path, check_repetitions
from markdown_page import Page, read_page, slugify

JOB = "apiVersion: rlt.dev/v1alpha1\nkind: RLTrainingJob\nmetadata: {name: a}\nspec: {model: {fromSeed: {seed: x}}}"


def page_of(folder: Path, text: str) -> Page:
    path = folder / "page.md"
    path.write_text(text)
    return read_page(path)


def problems(page: Page) -> list[str]:
    return [message for _, message in check_page(page)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a](missing.md)", "missing.md: does not exist"),
        ("# One\n[a](#two)", "#two: has no heading #two"),
        ("[a](ftp://example.com)", "ftp://example.com: is not a URL"),
        ("[a][b]", "[b]: does not exist"),
        ("It needs [KubeRay](https://example.com) 0.1 or newer.", "KubeRay 0.1: the minimum is "),
        ("`crds/missing.py`", "crds/missing.py: does not exist"),
        ("`tools/check_docs.py::missing`", "tools/check_docs.py::missing: is not defined there"),
        ("```yaml\na: [\n```", "YAML: "),
        ("```python\ndef f(:\n```", "Python: "),
        ("```sh\nif true\n```", "shell: "),
        ("```sh\nfrobnicate a\n```", "frobnicate: is not a known program"),
        ("```sh\nhelm version && make missing\n```", "make missing: the Makefile has no such target"),
        ("```sh\nrlt validate a.yaml |\n  kubectl rlt missing\n```", "rlt missing: is not a command"),
        ("```sh\nrlt get \\\n  --missing\n```", "rlt get: has no option --missing"),
        ("```console\n$ kubectl apply -f examples/missing.yaml\n```", "examples/missing.yaml: does not exist"),
        ("```java\n```", "java: is not one of the languages"),
    ],
)
def test_problem_is_found(tmp_path: Path, text: str, message: str) -> None:
    (found,) = problems(page_of(tmp_path, text))
    assert found.startswith(message)


def test_an_invalid_job_is_found(tmp_path: Path) -> None:
    found = problems(page_of(tmp_path, f"```yaml\n{JOB}\n```"))
    assert [message.partition(": ")[0] for message in found if ": none: " not in message] == [
        "spec.model.fromSeed.seed"
    ]


def test_correct_page_has_no_problems(tmp_path: Path) -> None:
    text = """# A title: `code`, and more
[here](#a-title-code-and-more), [there][name], [`code`](page.md), `tools/check_docs.py::check_page`

[name]: https://example.com/page

```sh
A=1 make lint    # a comment
rlt exec NAME -- df --help
kubectl get pods -o json | jq '.items[]
  | .metadata.name'
rlt get -o wide
```
"""
    assert problems(page_of(tmp_path, text)) == []


def test_line_of_a_problem_is_reported(tmp_path: Path) -> None:
    page = page_of(tmp_path, "# One\n\n```sh\nmake lint\nmake missing\n```\n")
    assert [line for line, _ in check_page(page)] == [5]


def test_repeated_changelog_entry_is_found() -> None:
    changelog = """## 0.1.0
- **Trainer**: `training.optimizer: muon` is torch's Muon for
  the matrices of the layers.
- **Operator**: restarts a failed training from its latest checkpoint.
- **API**: `training.optimizer: muon` is torch's Muon for the
  matrices of the layers.
"""
    assert list(check_repetitions(changelog)) == [(5, "repeats the entry of line 2")]


def test_page_that_the_navigation_lacks_and_entry_without_a_page_are_found() -> None:
    config = "nav:\n  - rlt: index.md\n  - Concepts:\n      - decisions/removed.md\n"
    files = [ROOT / "docs" / name for name in ("index.md", "new.md", "images/a.svg")] + [ROOT / "README.md"]
    assert list(check_navigation(config, files)) == [
        (1, "nav: new.md is missing"),
        (4, "nav: decisions/removed.md does not exist"),
    ]


def test_paths_of_other_trees_are_not_checked() -> None:
    assert check_path("/etc/rlt/missing") is None
    assert check_path("runs/NAME") is None
    assert not (ROOT / "runs").exists()


def test_anchors_equal_githubs() -> None:
    assert slugify("What has not run on a GPU") == "what-has-not-run-on-a-gpu"
    assert slugify("`rlt get`, and [more](page.md)") == "rlt-get-and-more"


def test_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
