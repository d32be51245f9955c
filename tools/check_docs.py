"""Checks the documentation: `python tools/check_docs.py`. It prints `file:line: message` and fails on any finding.

Links and anchors resolve, code blocks parse, manifests validate, the commands, targets and files that the pages name
exist, the site's navigation has every page, and no changelog entry repeats another. `zensical build --strict` checks
the site. Hosts of external links are not contacted.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from itertools import combinations
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from markdown_page import CodeBlock, Page, read_page
from rlt_api.schema.crd import GROUP
from rlt_api.validation.validate import validate_manifest
from rlt_core.kuberay import KUBERAY_MINIMUM
from shell_commands import check_commands, prompted_commands

ROOT = Path(__file__).parent.parent
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()}
LANGUAGES = ("", "console", "python", "sh", "text", "yaml")
LIST_OR_TABLE = re.compile(r"^([-*] |\d+\. |\|)")
PATH = re.compile(r"\w+(/[\w.*-]+)+/?")
DEFINITION = r"^ *(async )?(def|class) {name}\b"
MINIMUM = re.compile(r"\b(KubeRay|Kubernetes)(?:\]\([^()]*\))? (\d[\d.]*\d) or (?:newer|later)")
CHANGELOG_ENTRY = re.compile(r"^- .*(?:\n  .*)*", re.MULTILINE)
SAME_START = 160
"""Characters of two changelog entries that are compared."""
SIMILARITY = 0.8
"""Above this ratio of `difflib.SequenceMatcher`, the second entry repeats the first."""
NAVIGATION = re.compile(r"^ +- (?:.*: )?([\w/-]+\.md)$", re.MULTILINE)
"""A page in the navigation of mkdocs.yml."""
QUOTED_PAGE = re.compile(r"(?<![\w./-])(docs/[\w/-]+\.md)(?:#([\w-]+))?")

Problem = tuple[int, str]
"""Line and message."""


def main() -> None:
    tracked = tracked_files()
    pages = [read_page(path) for path in tracked if path.suffix == ".md"]
    found = [f"{page.path.relative_to(ROOT)}:{line}: {text}" for page in pages for line, text in check_page(page)]
    for path in tracked:
        if path.suffix != ".md" and path != Path(__file__):
            found += [f"{path.relative_to(ROOT)}:{line}: {text}" for line, text in check_quoted_pages(path)]
    found += [
        f"mkdocs.yml:{line}: {text}" for line, text in check_navigation((ROOT / "mkdocs.yml").read_text(), tracked)
    ]
    found += [f"CHANGELOG.md:{line}: {text}" for line, text in check_repetitions((ROOT / "CHANGELOG.md").read_text())]
    print("".join(f"{line}\n" for line in found), end="")
    if found:
        sys.exit(f"{len(found)} problems in the documentation")


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def check_page(page: Page) -> Iterator[Problem]:
    for line, target in page.links():
        if problem := check_link(page, target):
            yield line, problem
    for line, span in page.code_spans():
        if problem := check_path(span.split()[0] if span.split() else ""):
            yield line, problem
    for line, text in page.prose:
        for software, version in MINIMUM.findall(text):
            if version != minimum_versions()[software]:
                yield line, f"{software} {version}: the minimum is {minimum_versions()[software]}"
    for block in page.blocks:
        yield from check_block(block)
    if ROOT / "docs" in page.path.parents:
        yield from check_blank_lines(page)


def check_link(page: Page, target: str) -> str | None:
    """Return what is wrong with a link's target."""
    url = urlsplit(target)
    if url.scheme:
        return None if url.scheme in ("http", "https") and "." in url.netloc else f"{target}: is not a URL"
    path = (page.path.parent / url.path).resolve() if url.path else page.path
    if not path.exists():
        return f"{target}: does not exist"
    if ROOT / "docs" in page.path.parents and ROOT / "docs" not in path.parents:
        return f"{target}: is outside of docs/, where the site has no page: write the path as code"
    if url.fragment and (path.suffix != ".md" or url.fragment not in read_page(path).anchors()):
        return f"{target}: has no heading #{url.fragment}"
    return None


def check_path(word: str) -> str | None:
    """Return what is wrong with a path of this repository, or with a definition `path::name`, that a page names."""
    path, _, name = word.partition("::")
    if path.partition("/")[0] not in FOLDERS - {"out"} or not PATH.fullmatch(path) or "NN" in path:
        return None
    files = list(ROOT.glob(path.rstrip("/")))
    if not files:
        return f"{word}: does not exist"
    if name and not re.search(DEFINITION.format(name=name.rpartition(".")[2]), files[0].read_text(), re.MULTILINE):
        return f"{word}: is not defined there"
    return None


def check_block(block: CodeBlock) -> Iterator[Problem]:
    match block.language:
        case "yaml":
            yield from check_yaml(block)
        case "python":
            try:
                compile(block.text, "block", "exec")
            except SyntaxError as error:
                yield block.line + (error.lineno or 1) - 1, f"Python: {error.msg}"
        case "sh":
            yield from check_commands(block.text, block.line, check_path)
        case "console" | "":
            for line, command in prompted_commands(block):
                yield from check_commands(command, line, check_path)
            yield from check_definitions(block)
        case "text":
            pass
        case _:
            yield block.line, f"{block.language}: is not one of the languages {', '.join(LANGUAGES[1:])}"


def check_definitions(block: CodeBlock) -> Iterator[Problem]:
    """The definitions `path::name` of a call tree exist."""
    for number, line in enumerate(block.text.splitlines(), block.line):
        for word in line.split():
            if "::" in word and (problem := check_path(word.rstrip(","))):
                yield number, problem


def check_yaml(block: CodeBlock) -> Iterator[Problem]:
    """A block parses, and each manifest of rlt in it is valid."""
    try:
        documents = list(yaml.safe_load_all(block.text))
    except yaml.YAMLError as error:
        yield block.line, f"YAML: {' '.join(str(error).split())}"
        return
    for document in documents:
        if isinstance(document, dict) and str(document.get("apiVersion", "")).startswith(f"{GROUP}/"):
            for finding in validate_manifest(document, example_runtimes()):
                yield block.line, str(finding)


@cache
def minimum_versions() -> dict[str, str]:
    """Return the oldest supported version of each software, from the place that the code and the chart read."""
    chart = yaml.safe_load((ROOT / "charts/rlt-operator/Chart.yaml").read_text())
    (kubernetes,) = re.findall(r"^>=(\d+\.\d+)", chart["kubeVersion"])
    return {"KubeRay": KUBERAY_MINIMUM, "Kubernetes": kubernetes}


@cache
def example_runtimes() -> dict[str, dict[str, object]]:
    """Return the specs of the example runtimes by name."""
    manifests = [yaml.safe_load(path.read_text()) for path in (ROOT / "examples/runtimes").glob("*.yaml")]
    return {manifest["metadata"]["name"]: manifest["spec"] for manifest in manifests}


def check_blank_lines(page: Page) -> Iterator[Problem]:
    """Zensical renders a list or table as plain text if a paragraph precedes it without a blank line."""
    before = ""
    last = 0
    for number, line in page.prose:
        if LIST_OR_TABLE.match(line) and number == last + 1 and before and not re.match(r"[-*|#\s]|\d+\. ", before):
            yield number, "a list or table needs a blank line before it"
        before = line
        last = number


def check_repetitions(changelog: str) -> Iterator[Problem]:
    """No two entries of a changelog begin with nearly the same text."""
    entries = [
        (changelog.count("\n", 0, match.start()) + 1, " ".join(match[0].split())[:SAME_START])
        for match in CHANGELOG_ENTRY.finditer(changelog)
    ]
    for (first_line, first), (line, text) in combinations(entries, 2):
        if SequenceMatcher(None, first, text).ratio() > SIMILARITY:
            yield line, f"repeats the entry of line {first_line}"


def check_navigation(config: str, files: Sequence[Path]) -> Iterator[Problem]:
    """The navigation of the site has each page of docs/, and no other one."""
    listed = {
        ROOT / "docs" / match[1]: config.count("\n", 0, match.start(1)) + 1 for match in NAVIGATION.finditer(config)
    }
    pages = {path for path in files if path.suffix == ".md" and ROOT / "docs" in path.parents}
    for path in sorted(pages - listed.keys()):
        yield 1, f"nav: {path.relative_to(ROOT / 'docs')} is missing"
    for path in sorted(listed.keys() - pages):
        yield listed[path], f"nav: {path.relative_to(ROOT / 'docs')} does not exist"


def check_quoted_pages(path: Path) -> Iterator[Problem]:
    """Pages that code and manifests name exist, with their anchors."""
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    for match in QUOTED_PAGE.finditer(text):
        page = ROOT / match[1]
        anchor = match[2]
        line = text.count("\n", 0, match.start()) + 1
        if not page.exists():
            yield line, f"{match[0]}: does not exist"
        elif anchor and anchor not in read_page(page).anchors():
            yield line, f"{match[0]}: has no heading #{anchor}"


if __name__ == "__main__":
    main()
