"""Images in data: their formats, their tokens, and the errors of bad ones."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from PIL import Image
from transformers import AutoConfig, AutoTokenizer
from vision_model import draw_square, write_vision_model

from rlt_api.blocks.data import Data
from rlt_trainer.data.dataset import PromptDataset
from rlt_trainer.data.image_processor import ImageProcessor
from rlt_trainer.data.images import decode_image, name_images, read_images
from rlt_trainer.policy.config import load_image_processor

RED = draw_square("red")


@pytest.fixture(scope="module")
def vision_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_vision_model(tmp_path_factory.mktemp("vision-model")))


def load(folder: Path, model: str, images: Any, *, prompt: Any = "<image>?", **options: Any) -> PromptDataset:
    """Load a file with one row."""
    pq.write_table(pa.Table.from_pylist([{"prompt": prompt, "answer": "r", "images": images}]), folder / "a.parquet")
    data = Data.model_validate({"files": [str(folder / "a.parquet")], "imageKey": "images", **options})
    processor = ImageProcessor(model, AutoConfig.from_pretrained(model))
    tokenizer = AutoTokenizer.from_pretrained(model)
    return PromptDataset.load(data, tokenizer, seed=0, run_directory=folder, processor=processor)


def test_images_are_bytes_files_urls_and_pictures_of_the_hub(tmp_path: Path) -> None:
    file = tmp_path / "a b.png"
    file.write_bytes(RED)
    picture = Image.open(BytesIO(RED))
    values = [RED, str(file), file.as_uri(), {"bytes": RED, "path": "x"}, {"bytes": None, "path": str(file)}, picture]
    images = read_images(values, "row 1")
    assert len(images) == len(values)
    assert {decode_image(image).tobytes() for image in images} == {decode_image(RED).tobytes()}
    own = name_images(RED, [RED])[0]
    assert name_images(values, images)[:5] == (own, str(file), file.as_uri(), own, str(file))
    assert own.startswith("images/")
    assert own.endswith(".png")
    assert read_images(RED, "row 1") == (RED,)
    assert read_images(None, "row 1") == read_images([], "row 1") == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"GIF", "row 1, image 1 does not decode: .*Replace the image or remove the row"),
        (RED[:45], "row 1, image 1 does not decode"),
        ([RED, "/nowhere.png"], "row 1, image 2, /nowhere.png: the file cannot be read .No such file.*spec.storage"),
        ("https://example.org/a.png", "images are not downloaded. Put the file on a volume"),
        (7, "row 1, image 1 is int, not the bytes or the path of an image. Change data.imageKey"),
    ],
)
def test_bad_images_are_reported(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_images(value, "row 1")


def test_each_mark_becomes_the_tokens_of_its_image(tmp_path: Path, vision_model: str) -> None:
    messages = [{"role": "user", "content": "<image>or<image>?"}]
    images = [{"bytes": draw_square("red", size=size), "path": None} for size in (8, 16)]
    (prompt,) = load(tmp_path, vision_model, images, prompt=messages).batch(0, 1)
    assert prompt.text == (
        "<|user|><|vision_start|><|image_pad|><|vision_end|>or<|vision_start|><|image_pad|><|vision_end|>?<|eos|>"
        "<|assistant|>"
    )
    assert [token for token in prompt.token_ids if token >= 262] == [262, 264, 263, 262, *[264] * 4, 263]
    assert prompt.images == tuple(image["bytes"] for image in images)
    assert prompt.messages == messages  # for rewards: the text


def test_rows_without_images_and_other_images_are_other_data(tmp_path: Path, vision_model: str) -> None:
    assert load(tmp_path, vision_model, None, prompt="?").batch(0, 1)[0].images == ()
    red, blue = (load(tmp_path, vision_model, [draw_square(color)]).fingerprint() for color in ("red", "blue"))
    assert red["sha256"] != blue["sha256"]


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ("?", {}, "Prompt 1 has 1 images in the column of data.imageKey and 0 marks <image>"),
        ("<image>", {"imageKey": "pictures"}, "has no column pictures; it has prompt.*Change data.imageKey"),
        ("<image>", {"chatTemplate": "x"}, "renders 0 image tokens for a prompt with 1 images. Set data.chatTemplate"),
        (
            "<image>",
            {"maxPromptLength": 8, "overlongPrompts": "error"},
            "longer than data.maxPromptLength 8: the longest has 9 tokens, 1 images among them, whose size max_pixels",
        ),
    ],
)
def test_bad_prompts_are_reported(
    tmp_path: Path, vision_model: str, prompt: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load(tmp_path, vision_model, [RED], prompt=prompt, **options)


def test_a_model_without_image_processor_or_vision_is_rejected(
    make_config: Any, tmp_path: Path, vision_model: str
) -> None:
    data = {"preset": None, "files": ["/x.parquet"], "imageKey": "images"}
    with pytest.raises(ValueError, match=r"data.imageKey: images requires a model of type qwen2_5_vl"):
        load_image_processor(make_config(data=data))
    AutoConfig.from_pretrained(vision_model).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"model.path .*no image processor .*Copy preprocessor_config.json"):
        load_image_processor(make_config(data=data, model={"fromSeed": None, "path": str(tmp_path)}))
    assert load_image_processor(make_config()) is None
    with pytest.raises(ValueError, match=r"models of type qwen2_5_vl require prompts with images. Set data.imageKey"):
        load_image_processor(make_config(model={"fromSeed": None, "path": vision_model}))
