"""rlt version --server."""

from __future__ import annotations

import json

import pytest
from apiserver.in_cluster import Kubernetes
from click.testing import CliRunner

from rlt_cli.main import cli


@pytest.mark.apiserver
def test_the_installed_schema_equals_the_clis(kubernetes: Kubernetes) -> None:
    by = ["--kubeconfig", str(kubernetes.cluster.kubeconfig)]
    done = CliRunner().invoke(cli, ["version", "--server", "-o", "json", *by])
    assert done.exit_code == 0, done.stderr
    versions = json.loads(done.stdout)
    assert versions["serverSchema"] == versions["schema"]
