"""Command-line options of the webhook and of its certificate."""

from __future__ import annotations

import pytest

from rlt_operator.__main__ import main

SECRET = "--secret=ns/name"
CONFIGURATION = "--configuration=rlt"
SOURCE = "give --certificates, or --secret and --configuration"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["webhook"], SOURCE),
        (["webhook", SECRET], SOURCE),
        (["webhook", SECRET, CONFIGURATION, "--certificates=/certificates"], SOURCE),
        (["webhook", SECRET, "--certificates=/certificates"], SOURCE),
        (["webhook", "--secret=name"], "name: use NAMESPACE/NAME"),
        (["webhook", SECRET, CONFIGURATION, "--client-name=apiserver"], "--client-name needs --client-ca"),
        (["run", "--webhook-secret=ns/name"], "give both --webhook-secret and --webhook-configuration, or neither"),
    ],
)
def test_exactly_one_certificate_source_is_required(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert message in capsys.readouterr().err
