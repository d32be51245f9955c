"""The mounted modules run on the oldest supported Python, without packages."""

from __future__ import annotations

import ast
import os
import subprocess
import zipfile
from pathlib import Path

import observed as o
import pytest
from mounted_files import write_files
from test_run_command import old_pythons

from rlt_api.spec.training_config import PROGRAMS_FILE

MEASURE = """
import json, sys
sys.path.insert(0, "rlt_pod.pyz")
from rlt_pod.preflight.checks import data_checks, network_checks, service_checks
from rlt_pod.preflight.expected import parse_expected
from rlt_pod.preflight.measure import Data, Network, Services
from rlt_pod.preflight.members import RayNode
from rlt_pod.preflight.process import Process
from rlt_pod.preflight.result import to_json
expected = parse_expected(open("preflight.json").read())
process = Process(expected, "a", "127.0.0.1")
folder = process.find_files("t", process.write_file("t"), ["a"])
process.remove_folder("t")
link = process.find_broken_links([process.listen()])
network = Network((process.measure_network(),), 1, {}, {"a": 0.0}, 1, tuple(link))
services = Services((process.measure_services(),), (), (RayNode("i", "a", "127.0.0.1", 1, 0),))
data = Data((process.measure_data(),), (folder,), None)
results = [
    check(expected, measured)
    for module, measured in ((network_checks, network), (service_checks, services), (data_checks, data))
    for check, _ in module.CHECKS
]
print(json.dumps([to_json(each)["name"] for each in results if each is not None]))
"""


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pods mount."""
    folder = tmp_path_factory.mktemp("rlt")
    return write_files(
        o.job({**o.COMMAND_SPEC, "preflight": {"level": "basic"}, "storage": {"mountPath": str(folder)}}), folder
    )


def test_the_modules_have_the_syntax_of_python_3_8(mounted: Path) -> None:
    with zipfile.ZipFile(mounted / PROGRAMS_FILE) as archive:
        modules = archive.namelist()
        assert len(modules) > 30
        for module in modules:
            ast.parse(archive.read(module), module, feature_version=(3, 8))


@pytest.mark.skipif(not old_pythons(), reason="Python 3.8, 3.9 and 3.10 are not installed")
@pytest.mark.parametrize("python", old_pythons())
def test_measurements_and_checks_run_on_an_old_python(mounted: Path, python: str) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, "-c", MEASURE], cwd=mounted, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"run-directory"' in done.stdout
    assert '"shared-memory"' in done.stdout
