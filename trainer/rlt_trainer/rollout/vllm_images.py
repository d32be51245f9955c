"""Prompts with images as vLLM's input: the image processor of the policy builds it, so that both get the same pixels.

vLLM's own processor resizes with torchvision, whose results differ from PIL's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import torch

from rlt_trainer.data.image_processor import ImageProcessor
from rlt_trainer.rollout.engine import Request

if TYPE_CHECKING:
    from vllm.inputs.engine import MultiModalInput
    from vllm.multimodal.inputs import MultiModalKwargsItem, PlaceholderRange

MODALITY = "image"
"""vLLM's name of the inputs."""


class ImagePrompts:
    """Builds vLLM's input for prompts with images."""

    def __init__(self, processor: ImageProcessor, dtype: torch.dtype) -> None:
        """dtype: of the weights. vLLM expects the pixels in it."""
        self._processor = processor
        self._dtype = dtype

    def build(self, requests: Sequence[Request]) -> list[MultiModalInput]:
        """Build the input for each of the requests. An image that occurs several times is processed once."""
        from vllm.inputs.engine import mm_input
        from vllm.multimodal.inputs import MultiModalKwargsItems

        unique = list(dict.fromkeys(chain.from_iterable(request.images for request in requests)))
        parts = dict(zip(unique, self._process(unique), strict=True)) if unique else {}
        return [
            mm_input(
                list(request.prompt),
                MultiModalKwargsItems({MODALITY: [parts[image][0] for image in request.images]}),
                {MODALITY: [_identify(image) for image in request.images]},
                {MODALITY: list(self._find_places(request.prompt, [parts[image][1] for image in request.images]))},
            )
            for request in requests
        ]

    def _process(self, images: Sequence[bytes]) -> Iterator[tuple[MultiModalKwargsItem, int]]:
        """Yield the input of each image, and the number of its tokens."""
        from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems

        inputs = self._processor.process(images)
        fields = {
            "pixel_values": MultiModalFieldConfig.flat_from_sizes(MODALITY, inputs.grids.prod(-1)),
            "image_grid_thw": MultiModalFieldConfig.batched(MODALITY, keep_on_cpu=True),
        }
        values: Any = {"pixel_values": inputs.pixels.to(self._dtype), "image_grid_thw": inputs.grids}
        items = MultiModalKwargsItems.from_hf_inputs(values, fields)[MODALITY]
        return zip(items, (inputs.grids.prod(-1) // self._processor.patches).tolist(), strict=True)

    def _find_places(self, prompt: Sequence[int], counts: Sequence[int]) -> Iterator[PlaceholderRange]:
        """Yield the range of each image from the number of its tokens, which are adjacent."""
        from vllm.multimodal.inputs import PlaceholderRange

        places = [place for place, token in enumerate(prompt) if token == self._processor.token]
        for count, start in zip(counts, accumulate(counts, initial=0), strict=False):
            yield PlaceholderRange(offset=places[start], length=count)


def _identify(image: bytes) -> str:
    """Return the key of an image in vLLM's caches."""
    return hashlib.blake2b(image, digest_size=16).hexdigest()
