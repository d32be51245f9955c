"""A release needs a clean tree at its tag, with its version in every package and a dated changelog."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from release.source import CHART, PROJECTS, Tree, find_homepage, find_notes, find_problem, read_tree
from rlt_e2e.environment import ROOT

CHANGELOG = "# Changelog\n\n## 0.2.0 (unreleased)\nNew.\n\n## 0.1.0 (2026-11-27)\nThe first.\n\n### Added\n- All.\n"
RELEASED = Tree(
    changed=(),
    revision="a" * 40,
    tagged="a" * 40,
    versions={"pyproject.toml: project.version": "0.1.0", "Chart.yaml: version": "0.1.0"},
    changelog=CHANGELOG,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the project's own files of versions, all committed."""
    for name in [CHART, "CHANGELOG.md", *(f"{folder}/pyproject.toml" for folder in PROJECTS.values())]:
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((ROOT / name).read_text())
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    author = ["-c", "user.name=tests", "-c", "user.email=tests@example.com"]
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True)


def commit(folder: Path) -> None:
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "all: a commit")


def test_a_clean_tree_at_its_tag_is_released() -> None:
    assert find_problem("0.1.0", RELEASED) is None


@pytest.mark.parametrize(
    ("version", "tree", "words"),
    [
        ("", RELEASED, ("VERSION: empty", "VERSION=X.Y.Z")),
        ("v0.1.0", RELEASED, ("VERSION: v0.1.0", "without a v")),
        ("0.2.0", RELEASED, ("VERSION: 0.2.0", "pyproject.toml: project.version, 0.1.0", "change one")),
        ("0.1.0", replace(RELEASED, changed=tuple("abcde")), ("a, b, c and 2 more", "commit or remove")),
        (
            "0.1.0",
            replace(RELEASED, changelog="## 0.1.0 (unreleased)\nNew.\n"),
            ("## 0.1.0 (YYYY-MM-DD)", "unreleased"),
        ),
        ("0.1.0", replace(RELEASED, tagged=""), ("v0.1.0 does not exist", "git tag v0.1.0")),
        ("0.1.0", replace(RELEASED, tagged="b" * 40), ("HEAD is aaaaaaaaaaaa", "git checkout v0.1.0")),
    ],
)
def test_another_tree_is_rejected_with_what_to_do(version: str, tree: Tree, words: tuple[str, ...]) -> None:
    problem = find_problem(version, tree)
    assert problem is not None
    assert all(each in problem for each in words), problem
    assert ". " not in problem  # one sentence


def test_all_packages_have_one_version() -> None:
    assert len(set(read_tree("0.1.0").versions.values())) == 1


def test_the_state_of_a_repository_is_read(repository: Path) -> None:
    assert read_tree("0.1.0", repository).tagged == ""
    assert read_tree("*", repository).tagged == ""
    git(repository, "tag", "--annotate", "--message", "0.1.0", "v0.1.0")
    tree = read_tree("0.1.0", repository)
    assert tree.tagged == tree.revision
    assert tree.changed == ()
    (repository / "new.txt").touch()
    (repository / "CHANGELOG.md").write_text("changed")
    assert set(read_tree("0.1.0", repository).changed) == {"new.txt", "CHANGELOG.md"}
    commit(repository)
    tree = read_tree("0.1.0", repository)
    assert tree.tagged not in ("", tree.revision)


def test_the_notes_are_the_dated_section_of_the_version() -> None:
    assert find_notes("0.1.0", CHANGELOG) == "The first.\n\n### Added\n- All.\n"
    assert find_notes("0.2.0", CHANGELOG) == ""
    assert find_notes("0.3.0", CHANGELOG) == ""


@pytest.mark.parametrize(
    ("remote", "page"),
    [
        ("https://github.com/owner/rlt.git", "https://github.com/owner/rlt"),
        ("https://github.com/owner/rlt/", "https://github.com/owner/rlt"),
        ("git@github.com:owner/rlt.git", "https://github.com/owner/rlt"),
        ("ssh://git@github.com/owner/rlt", "https://github.com/owner/rlt"),
        ("https://token@github.com/owner/rlt.git", ""),
        ("/srv/git/rlt", ""),
        ("", ""),
    ],
)
def test_the_page_of_a_remote(remote: str, page: str) -> None:
    assert find_homepage(remote) == page
