"""Objects read in this process, as kubectl reads them."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from api_objects import read_object
from cluster import Cluster


def test_an_api_server_that_does_not_answer_is_an_error_with_the_object(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    context = {"name": "test", "context": {"cluster": "test", "user": "test"}}
    config = {
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [context],
        "current-context": "test",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="namespaces/team/rltrainingjobs/sum: "):
        read_object(Cluster(tmp_path / "kubeconfig", None), "team", "rltrainingjob", "sum")
