"""The real API server and the offline validator agree on random manifests.

`make fuzz-api` generates more of them (RLT_FUZZ_COUNT, RLT_FUZZ_SEED).
"""

from __future__ import annotations

import os

import pytest
from apiserver.in_cluster import Kubernetes, Webhook
from random_jobs import manifests

from rlt_e2e.fuzz_api import ApiServer, compare

pytestmark = pytest.mark.apiserver

COUNT = int(os.environ.get("RLT_FUZZ_COUNT", "300"))
SEED = int(os.environ.get("RLT_FUZZ_SEED", "0"))


def assert_agreement(kubernetes: Kubernetes, *, webhook: bool) -> None:
    def note(done: int) -> None:
        if done % 500 == 0 or done == COUNT:
            print(f"{done} of {COUNT} manifests, {'with' if webhook else 'without'} the webhook", flush=True)

    outcome = compare(ApiServer(kubernetes.cluster.kubeconfig), manifests(SEED, COUNT), webhook=webhook, note=note)
    print(outcome)
    assert outcome.disagreements == [], "\n\n".join(outcome.disagreements[:5])
    assert min(outcome.counts.values()) > COUNT // 50, "both verdicts occur"


def test_the_offline_validator_rejects_what_the_crd_rejects(kubernetes: Kubernetes) -> None:
    assert_agreement(kubernetes, webhook=False)


def test_with_the_webhook_both_reject_the_same(webhook: Webhook) -> None:
    assert_agreement(webhook.kubernetes, webhook=True)
