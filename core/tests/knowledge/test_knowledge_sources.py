"""The sources of the knowledge base: URLs of known sites, in the form of a page that can be opened."""

from __future__ import annotations

import re
from collections import Counter
from urllib.parse import urlsplit

import pytest

from rlt_core.knowledge.entries import Entry, load_entries

SITES = {
    *("alibaba.github.io", "arrow.apache.org", "arxiv.org", "developer.mozilla.org", "docs.aws.amazon.com"),
    *("docs.docker.com", "docs.nvidia.com", "docs.python.org", "docs.pytorch.org", "docs.ray.io", "docs.vllm.ai"),
    *(
        "docs.wandb.ai",
        "github.com",
        "huggingface.co",
        "hydra.cc",
        "kubernetes.io",
        "kueue.sigs.k8s.io",
        "man7.org",
        "numpy.org",
    ),
    *("pip.pypa.io", "rocm.docs.amd.com", "slurm.schedmd.com", "verl.readthedocs.io", "www.gnu.org"),
    *("kueue.sigs.k8s.io", "www.python-httpx.org"),
}
"""Sites of projects, standards and papers. No mirrors, blogs or short links."""
OWNER = r"/[A-Za-z0-9-]+/[A-Za-z0-9._-]+"
GITHUB = re.compile(rf"{OWNER}(?:/(?:issues|pull)/[1-9]\d*|/(?:blob|tree)/(?:main|master|v\d[\w.]*)/[\w./-]+[\w])?")
"""A thread, a file or folder of a branch or version, or a repository."""
THREAD = re.compile(r"/(?:issues|pull)/")
PAPER = re.compile(r"/abs/\d{4}\.\d{5}")


@pytest.mark.parametrize("entry", load_entries(), ids=lambda entry: entry.code)
def test_an_entrys_source_is_a_page_of_a_known_site(entry: Entry) -> None:
    url = urlsplit(entry.source)
    assert (url.scheme, url.netloc in SITES, url.query) == ("https", True, ""), entry.source
    assert re.fullmatch(r"[!-~]+", entry.source)
    if url.netloc == "github.com":
        assert GITHUB.fullmatch(url.path), entry.source
    if url.netloc == "arxiv.org":
        assert PAPER.fullmatch(url.path), entry.source


def test_a_thread_is_the_source_of_one_entry() -> None:
    threads = Counter(entry.source for entry in load_entries() if THREAD.search(entry.source))
    assert [source for source, count in threads.items() if count > 1] == []


def test_every_site_is_used() -> None:
    assert {urlsplit(entry.source).netloc for entry in load_entries()} == SITES
