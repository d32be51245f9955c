import subprocess
from pathlib import Path

import pytest

from rlt_e2e.cluster.certificates import issue_all
from rlt_e2e.cluster.layout import Layout


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    layout = Layout(tmp_path_factory.mktemp("state"), 1, subnet=77)
    issue_all(layout)
    return layout


def openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)


def test_server_certificate_is_valid_for_the_addresses_of_the_server(layout: Layout) -> None:
    folder = layout.certificates
    verified = openssl("verify", "-CAfile", folder / "ca.crt", "-purpose", "sslserver", folder / "kube-apiserver.crt")
    assert verified.returncode == 0, verified.stderr
    text = openssl("x509", "-in", folder / "kube-apiserver.crt", "-noout", "-ext", "subjectAltName").stdout
    assert "IP Address:10.77.0.1" in text
    assert "IP Address:10.96.0.1" in text


def test_etcd_does_not_accept_a_user_certificate(layout: Layout) -> None:
    folder = layout.certificates
    assert openssl("verify", "-CAfile", folder / "etcd-ca.crt", folder / "admin.crt").returncode != 0


def test_user_certificate_is_not_valid_for_a_server(layout: Layout) -> None:
    folder = layout.certificates
    verified = openssl("verify", "-CAfile", folder / "ca.crt", "-purpose", "sslserver", folder / "node-1.crt")
    assert verified.returncode != 0


def test_only_root_can_read_keys_and_kubeconfigs(layout: Layout) -> None:
    assert layout.certificates.stat().st_mode & 0o077 == 0
    assert layout.admin.stat().st_mode & 0o077 == 0
