"""Command-line options of the webhook."""

from __future__ import annotations

import pytest

from rlt_operator.__main__ import main

OWN = ["--webhook-secret=ns/name", "--webhook-configuration=rlt"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --webhook-certificates, or --webhook-secret and --webhook-configuration"),
        (OWN[:1], "give --webhook-certificates, or --webhook-secret and --webhook-configuration"),
        ([*OWN, "--webhook-certificates=/certificates"], "give --webhook-certificates, or"),
        (["--webhook-secret=name"], "name: use NAMESPACE/NAME"),
    ],
)
def test_exactly_one_certificate_source_is_required(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--webhook-port=9443", *options])
    assert message in capsys.readouterr().err
