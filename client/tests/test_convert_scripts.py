"""Scripts with the shape of published ones: every part is in the job or in a comment, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from script_musts import MUSTS
from test_convert_tokens import find_unseen

from rlt import Job
from rlt.convert.convert import convert
from rlt.convert.draft import Draft
from rlt.convert.missing import list_missing

FOLDER = Path(__file__).parent / "script_sources"
SOURCES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.sh"))}
SECRETS = ("0123456789abcdef0123456789abcdef01234567", "hf_abcdefghijklmnopqrstuvwx")
ADDED = ("bash", "python", "env")
"""Words of a command that the source may not have: the shell, and the program that uv runs."""


def test_each_script_has_its_musts() -> None:
    assert SOURCES.keys() == MUSTS.keys()
    assert len(SOURCES) >= 45


@pytest.mark.parametrize("name", SOURCES)
def test_the_job_or_its_comments_have_each_must(name: str) -> None:
    must = MUSTS[name]
    converted = convert(SOURCES[name], f"{name}.sh")
    draft = Draft(spec=converted.manifest["spec"])
    assert {path: draft.get(path) for path in must.fields} == must.fields
    notes = "\n".join(map(str, converted.left_out))
    assert [part for part in must.named if part not in notes] == [], notes
    command = draft.get("framework.command")
    assert [word for word in must.words if word not in command] == [], command


@pytest.mark.parametrize("name", SOURCES)
def test_a_script_without_one_token_is_another_job_or_has_other_comments(name: str) -> None:
    assert find_unseen(SOURCES[name], "command") == []


@pytest.mark.parametrize("name", SOURCES)
def test_the_job_has_only_known_fields_and_the_missing_ones_are_listed_at_once(name: str) -> None:
    converted = convert(SOURCES[name], f"{name}.sh", image="registry.example/image:1")
    messages = [f"{each.field}: {each.message}" for each in list_missing(converted.manifest)]
    assert [each for each in messages if "is not a field" in each] == []
    devices = converted.manifest["spec"]["cluster"]["workers"][0]["accelerator"]
    assert ("count" in devices) != any("accelerator.count" in each for each in messages)
    assert not any("cluster.image" in each for each in messages)
    first = {finding.field for finding in Job.from_yaml(converted.to_yaml(name)).validate()}
    assert first <= {each.partition(": ")[0] for each in messages}


@pytest.mark.parametrize("name", SOURCES)
def test_the_words_of_the_command_are_in_the_source(name: str) -> None:
    command = " ".join(convert(SOURCES[name], f"{name}.sh").manifest["spec"]["framework"]["command"])
    source = SOURCES[name].lower()
    words = {word.lower() for word in re.findall(r"[A-Za-z]{3,}", command)}
    assert {word for word in words if word not in source} <= set(ADDED)


@pytest.mark.parametrize("name", SOURCES)
def test_no_secret_is_in_the_job_or_in_a_comment(name: str) -> None:
    written = convert(SOURCES[name], f"{name}.sh").to_yaml(name)
    assert [secret for secret in SECRETS if secret in written] == []
