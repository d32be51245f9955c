"""The chart, the krew plugin and the registry of a release."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest
import yaml

from release.chart import FOLDER, ICON, complete_metadata, complete_values, make_links_absolute
from release.krew import LAUNCHER, build_manifest
from release.registry import PushedImage, is_loopback, read_content
from release.source import Source
from rlt_e2e.environment import ROOT

PAGE = "https://github.com/owner/rlt"
SOURCE = Source("0.1.0", "a" * 40, 1000, PAGE, "Notes.\n")
DIGEST = f"sha256:{'4f' * 32}"
IMAGE = PushedImage("registry.example.com/team/rlt-operator", "0.1.0", DIGEST)


def test_the_values_of_a_pushed_chart_name_the_image_by_digest() -> None:
    before = (FOLDER / "values.yaml").read_text()
    after = complete_values(before, SOURCE, IMAGE)
    values = yaml.safe_load(before)
    image = {**values["image"], "repository": IMAGE.repository, "digest": DIGEST}
    alerts = {**values["alerts"], "runbooks": f"{PAGE}/blob/v0.1.0/docs/runbooks.md"}
    assert yaml.safe_load(after) == {**values, "image": image, "alerts": alerts}
    assert re.findall("#.*", after) == re.findall("#.*", before)


def test_without_a_registry_the_values_keep_the_image() -> None:
    values = yaml.safe_load(complete_values((FOLDER / "values.yaml").read_text(), SOURCE, None))
    assert values["image"] == yaml.safe_load((FOLDER / "values.yaml").read_text())["image"]


def test_a_renamed_value_is_an_error() -> None:
    with pytest.raises(ValueError, match="runbooks"):
        complete_values("image:\n  repository: rlt-operator\n", SOURCE, None)


def test_the_metadata_have_links_icon_and_image() -> None:
    before = yaml.safe_load((FOLDER / "Chart.yaml").read_text())
    after = yaml.safe_load(complete_metadata((FOLDER / "Chart.yaml").read_text(), SOURCE, IMAGE))
    assert after["icon"] == f"{PAGE}/raw/v0.1.0/{ICON}"
    assert (ROOT / ICON).exists()
    assert after["home"] == PAGE
    assert after["annotations"].items() >= before["annotations"].items()
    (image,) = yaml.safe_load(after["annotations"]["artifacthub.io/images"])
    assert image["image"] == IMAGE.pinned


def test_the_links_of_the_charts_page_lead_to_files_of_the_tag() -> None:
    page = make_links_absolute((FOLDER / "README.md").read_text(), SOURCE)
    links = re.findall(r"\]\(([^)]+)\)", page)
    pages = [link for link in links if link.startswith(SOURCE.pages)]
    assert len(pages) > 5
    for link in links:
        assert link.startswith(("https://", "#"))
    for link in pages:
        assert (ROOT / link.removeprefix(f"{SOURCE.pages}/").partition("#")[0]).exists(), link


def test_the_manifest_of_krew_names_the_launcher() -> None:
    manifest = build_manifest(SOURCE, f"{SOURCE.downloads}/kubectl-rlt-0.1.0.tar.gz", "0" * 64)
    (platform,) = manifest["spec"]["platforms"]
    assert platform["uri"] == f"{PAGE}/releases/download/v0.1.0/kubectl-rlt-0.1.0.tar.gz"
    assert platform["bin"] == f"kubectl-rlt/{LAUNCHER.name}"
    assert manifest["spec"]["version"] == "v0.1.0"
    assert len(manifest["spec"]["shortDescription"]) <= 50  # krew's guide


def test_the_plugin_without_python_prints_what_to_set() -> None:
    environment = {**os.environ, "RLT_PYTHON": "no-such-python"}
    done = subprocess.run([LAUNCHER, "version"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no-such-python is not Python 3.11 or newer" in done.stderr
    assert "set RLT_PYTHON" in done.stderr


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost:5000", True),
        ("127.0.0.1:5000/team", True),
        ("localhost", True),
        ("registry.example.com/team", False),
    ],
)
def test_registries_on_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_the_content_of_a_chart_is_its_layer() -> None:
    assert read_content(json.dumps({"config": {"digest": "sha256:0"}, "layers": [{"digest": DIGEST}]})) == DIGEST
