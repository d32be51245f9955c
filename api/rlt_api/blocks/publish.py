"""spec.publish: where the trained model goes."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from rlt_api.blocks.storage import BucketUrl
from rlt_api.model import ApiModel, ObjectName, RegistryUrl, Url, cel

HUB_KEYS = ("HF_TOKEN",)
BUCKET_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
REGISTRY_KEYS = (".dockerconfigjson",)
"""Of a Secret of the type kubernetes.io/dockerconfigjson."""


class Publication(ApiModel):
    """A place for the exported model and its model card: a repository on the Hugging Face hub, a bucket, or an image
    registry."""

    model_config = cel(
        (
            "[has(self.hub), has(self.bucket), has(self.registry)].filter(given, given).size() == 1",
            "must have exactly one of hub, bucket and registry",
        ),
        ("!has(self.endpoint) || has(self.bucket)", "endpoint is only for bucket"),
        ("!has(self.public) || !self.public || has(self.hub)", "public is only for hub"),
    )

    hub: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """A model repository on the Hugging Face hub, such as org/math-grpo. It is created if it does not exist. All files
    are one commit on its branch main."""
    public: bool = False
    """Whether a repository that is created is public. The visibility of an existing one is not changed."""
    bucket: BucketUrl | None = None
    """Bucket and prefix for the files, such as s3://models/math-grpo. The prefix is empty, or this job has published
    there before. The object rlt-published.json is written last: without it, the files are incomplete."""
    endpoint: Url | None = None
    """URL of the bucket's server, such as https://minio.storage:9000. Default: Amazon's S3."""
    registry: RegistryUrl | None = None
    """An image in a registry, such as oci://registry.example.com/models/math-grpo:v1, whose file system has the files.
    Kubernetes mounts it as an image volume. The tag, by default latest, is written last and can be of an earlier image.
    """
    secret_name: ObjectName | None = None
    """Secret in the job's namespace with the key HF_TOKEN, for a bucket AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or
    for a registry .dockerconfigjson. The head and pods that train get them. Default: none; the pods use HF_TOKEN in
    cluster.env, or for a bucket the identity of their service account or node."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the Secret."""
        return HUB_KEYS if self.hub else BUCKET_KEYS if self.bucket else REGISTRY_KEYS

    @property
    def place(self) -> str:
        """The field that is given."""
        return self.hub or self.bucket or self.registry or ""


def name_variable(index: int, key: str) -> str:
    """Return the variable of the pods with a key of spec.publish[index].secretName.

    Each publication has separate variables: storage.bucket and the downloads can have other keys.
    """
    return f"RLT_PUBLISH_{index}_{key.removeprefix('.').upper()}"
