"""spec.rollout.multiTurn.sandbox: a pod for each conversation, for the programs of the policy or of an agent."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlt_api.blocks.cluster import Image
from rlt_api.blocks.resources import NodeSelector, Tolerations
from rlt_api.model import ApiModel, ObjectName, Quantity


class Sandbox(ApiModel):
    """Pods without the job's labels, Secrets, volumes and network, for the programs of the tool python, an MCP server,
    an agent or a reward function. Each pod serves one conversation: see docs/conversations.md."""

    provider: Literal["Pods", "AgentSandbox"] = "Pods"
    """What the pods belong to. Pods: a Job of Kubernetes. AgentSandbox: Sandboxes of kubernetes-sigs/agent-sandbox,
    which must be installed."""
    image: Image | None = None
    """Image of the pods, with python3 (3.9 or later). Default: cluster.image."""
    pool_size: Annotated[int, Field(ge=1, le=1024)] = 8
    """Number of pods, free and in use: the number of conversations with a sandbox at the same time. A pod is replaced
    when its conversation ends."""
    cpu: Quantity = "500m"
    """Number of CPUs of each pod, as request and limit."""
    memory: Quantity = "512Mi"
    """Memory of each pod, as request and limit. A process of a program gets three quarters of it."""
    disk: Quantity = "256Mi"
    """Size of the folder /work in each pod, as request and limit. /tmp is the same folder. The rest of the file system
    is read-only."""
    claim_timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 300.0
    """Time for a pod to become ready when fewer than poolSize conversations have one, in seconds. After it, the
    conversation counts as failed. The driver waits for the first pod before the training for the same time."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the pods, such as gvisor. Default: the runtime of the nodes."""
    node_selector: NodeSelector = {}
    """Labels of the nodes that can run the pods."""
    tolerations: Tolerations = []
    """Tolerations of the pods."""
