"""What network.attach needs in the podTemplate of the workers."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.spec.job_spec import RLTrainingJobSpec

ATTACH = "spec.network.attach"
MULTUS_ANNOTATION = "k8s.v1.cni.cncf.io/networks"


def validate_multus(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """network.attach multus needs the annotation k8s.v1.cni.cncf.io/networks, with the names of networks, in the
    podTemplate of each worker group. The operator would hold the job."""
    if spec.network.attach != "multus":
        return
    for index, group in enumerate(spec.cluster.workers):
        metadata = group.pod_template.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        if isinstance(annotations, dict) and annotations.get(MULTUS_ANNOTATION):
            continue
        template = f"spec.cluster.workers[{index}].podTemplate"
        message = f"needs the annotation {MULTUS_ANNOTATION} in {template}.metadata.annotations"
        fix = "add it with the name of a NetworkAttachmentDefinition, or remove attach"
        yield Finding(ATTACH, "multus", message, fix, rule="multus", involved=(template,), edits=({ATTACH: None},))


RULES = (validate_multus,)
