"""The publications of a run: spec.publish."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from rlt_api.blocks.publish import Publication, name_variable
from rlt_api.spec.training_config import PublicationResult, RunBucket, TrainingConfig
from rlt_pod.download.identity import get_region
from rlt_pod.download.signature import Keys
from rlt_trainer.bucket.s3 import S3Objects
from rlt_trainer.errors import TrainingError
from rlt_trainer.publishing.bucket import BucketPrefix
from rlt_trainer.publishing.hub import HubRepository
from rlt_trainer.publishing.place import Place
from rlt_trainer.publishing.registry import ImageRepository

_log = logging.getLogger(__name__)

CARD = "README.md"


def open_places(config: TrainingConfig, environment: Mapping[str, str] = os.environ) -> list[Place]:
    """Open the places of a run, with the credentials of their Secrets or of the pod."""
    return [_open(config, index, each, environment) for index, each in enumerate(config.publish or [])]


def publish_folder(config: TrainingConfig, folder: Path, card: str) -> list[PublicationResult]:
    """Add the model card to an exported model, and publish it in all places. A failure is a result."""
    return [_publish(place, folder, card) for place in open_places(config)]


def _publish(place: Place, folder: Path, card: str) -> PublicationResult:
    try:
        (folder / CARD).write_text(card, encoding="utf-8")
        return PublicationResult(url=place.url, revision=place.publish(folder))
    except TrainingError as error:
        return PublicationResult(url=place.url, error=str(error))
    except Exception as error:  # the model is trained and exported: no error of a client may fail the job
        _log.exception("%s", place.url)
        return PublicationResult(url=place.url, error=f"{type(error).__name__}: {error}")


def _open(config: TrainingConfig, index: int, publication: Publication, environment: Mapping[str, str]) -> Place:
    field = f"spec.publish[{index}]"
    keys = {key: environment.get(name_variable(index, key)) for key in publication.keys}
    own = {key: value for key, value in keys.items() if value}
    run = f"{config.namespace}/{Path(config.run_directory).name}"
    if publication.bucket is not None:
        bucket = RunBucket(url=publication.bucket, endpoint=publication.endpoint)
        objects = S3Objects(bucket, keys=Keys.find(own, region=get_region()))
        return BucketPrefix(objects, run, f"{field}.bucket")
    if publication.registry is not None:
        return ImageRepository(publication.registry, f"{field}.registry", own.get(".dockerconfigjson"))
    assert publication.hub is not None
    return HubRepository(
        publication.hub,
        f"{field}.hub",
        token=own.get("HF_TOKEN"),
        public=publication.public,
        message=f"Publish {config.job} after {config.training.total_steps} steps",
    )
