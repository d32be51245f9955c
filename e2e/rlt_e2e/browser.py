"""Debian's Chromium, which tests drive with Playwright."""

from __future__ import annotations

import shutil

from rlt_e2e.cluster.locks import exclusive_lock
from rlt_e2e.cluster.stages import cache_folder, stage
from rlt_e2e.environment import ROOT


def obtain_chromium() -> str:
    """Return the path of Chromium. The first call on a machine installs it with apt-get."""
    with exclusive_lock(cache_folder() / "chromium.lock"):
        if not shutil.which("chromium"):
            log = ROOT / "out/logs/chromium.log"
            with stage("install Chromium from Debian", estimate_s=60) as this:
                this.run(["apt-get", "update"], log=log)
                packages = ("chromium", "fonts-dejavu-core")
                this.run(["apt-get", "install", "-y", "--no-install-recommends", *packages], log=log)
    found = shutil.which("chromium")
    assert found, "apt-get has installed no chromium"
    return found
