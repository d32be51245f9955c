"""A model on the hub without access: the error names the Secret and the field."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROGRAM = """
from pathlib import Path
from rlt_api.blocks.model import Model
from rlt_trainer.policy.model_files import prepare_model_files
prepare_model_files(Model(path="org/gated"), Path("scratch"))
"""


class Gated(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("X-Error-Code", "GatedRepo")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


def test_a_gated_model_names_the_secret(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gated)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path), "no_proxy": "127.0.0.1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **hub}, capture_output=True, text=True)
    server.shutdown()
    server.server_close()
    error = done.stderr.splitlines()[-1]
    assert error.startswith("ValueError: model.path org/gated: the hub gives no access to it (")
    assert "set spec.cluster.env: [{name: HF_TOKEN, secretKeyRef: {name: hub, key: token}}]" in error
