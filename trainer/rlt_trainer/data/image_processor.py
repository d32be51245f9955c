"""The image processor of a model: from encoded images to the input of its vision tower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from rlt_trainer.data.images import decode_image


@dataclass(frozen=True)
class ImageInputs:
    """The input of a vision tower."""

    pixels: Tensor
    """[patches, values of a patch], float32: the patches of all images, one after the other."""
    grids: Tensor
    """[images, 3], int64: number of patches over time (1), height and width of each image."""
    token: int
    """The token that stands for a part of an image in a prompt."""

    def to(self, device: torch.device) -> ImageInputs:
        """Copy the tensors to the device."""
        return replace(self, pixels=self.pixels.to(device), grids=self.grids.to(device))


class ImageProcessor:
    """Processes images as the model's own image processor does, in its version on PIL."""

    def __init__(self, path: str, config: PreTrainedConfig, *, revision: str | None = None) -> None:
        """Load the processor of the model at `path`, a folder or a name on the hub.

        Raises ValueError naming model.path if it has none.
        """
        from transformers import AutoImageProcessor  # slow import that only prompts with images need

        try:
            self._processor: Any = AutoImageProcessor.from_pretrained(  # type: ignore[no-untyped-call]
                path, revision=revision or "main", backend="pil"
            )
        except (OSError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(
                f"model.path {path}: no image processor can be loaded from it ({reason}). Copy "
                "preprocessor_config.json of the model there."
            ) from error
        self.token: int = config.image_token_id
        """The token that stands for a part of an image in a prompt."""
        self.patches: int = int(self._processor.merge_size) ** 2
        """The patches of one token."""

    def count_tokens(self, image: bytes) -> int:
        """Return the number of tokens of an image in a prompt."""
        size = decode_image(image).size
        patches: int = self._processor.get_number_of_image_patches(size[1], size[0])
        return patches // self.patches

    def process(self, images: Sequence[bytes]) -> ImageInputs:
        """Build the input of the vision tower for `images`. Without images, for a small blank one.

        An image that occurs several times, such as for a group of responses, is decoded once.
        """
        if not images:
            return self._blank
        numbers = {image: number for number, image in enumerate(dict.fromkeys(images))}
        found = self._processor(images=[decode_image(image) for image in numbers], return_tensors="pt")
        grids: Tensor = found["image_grid_thw"]
        pixels = found["pixel_values"].split(grids.prod(-1).tolist())
        order = [numbers[image] for image in images]
        return ImageInputs(torch.cat([pixels[number] for number in order]), grids[order], self.token)

    @cached_property
    def _blank(self) -> ImageInputs:
        side = int(self._processor.merge_size)
        values = 3 * int(self._processor.temporal_patch_size) * int(self._processor.patch_size) ** 2
        return ImageInputs(torch.zeros(side**2, values), torch.tensor([[1, side, side]]), self.token)
