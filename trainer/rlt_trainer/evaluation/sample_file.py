"""The file of an evaluation: one row for each response, as Parquet."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.evaluation.samples import Samples

_log = logging.getLogger(__name__)

MAX_TEXT = 8 * 2**20
"""Maximum number of characters of all texts in a file, before compression."""
Texts = dict[tuple[int, int], dict[str, str | None]]
"""Index of a prompt and number of a response -> prompt, ground_truth and response. None: left out."""
_TEXTS = ("prompt", "ground_truth", "response")
_SCORES = ("index", "prompt_id", "data_source", "sample", "score", "answer_group")
"""The columns of Samples."""


def write_samples(samples: Samples, batch: RolloutBatch) -> bytes:
    """Return the content of an evaluation's file. The responses to a prompt are adjacent.

    The file has the scores of all responses, and the texts of evenly spaced prompts up to MAX_TEXT. A reward that
    failed, and a text that is left out, is null. Raises ValueError for a data source that is not Unicode.
    """
    n = samples.n
    prompts = batch.prompts
    lengths = [len(text) for text in batch.texts]
    kept = select_texts([sum(lengths[row : row + n]) + len(prompts[row].text) for row in range(0, len(lengths), n)])
    columns: dict[str, Any] = {
        "index": samples.indices.repeat(n),
        "prompt_id": pa.array(samples.ids.repeat(n)).dictionary_encode(),
        "data_source": pa.array(samples.sources.repeat(n)).dictionary_encode(),
        "sample": np.tile(np.arange(n, dtype=np.int32), len(samples.scores)),
        "score": _to_nullable(samples.scores.ravel()),
        **{f"reward/{name}": _to_nullable(each.numpy()) for name, each in batch.scores.by_reward.items()},
        "answer_group": samples.answers.ravel().astype(np.int32),
        "tokens": np.array([sum(len(part.token_ids) for part in each.sequences) for each in batch.responses]),
        "finish_reason": pa.array([each.finish_reason for each in batch.responses]).dictionary_encode(),
        "prompt": _encode_texts([prompt.text for prompt in prompts], kept.repeat(n)),
        "ground_truth": _encode_texts([prompt.ground_truth for prompt in prompts], kept.repeat(n)),
        "response": _encode_texts(batch.texts, kept.repeat(n)),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return bytes(sink.getvalue())


def read_samples(file: Path) -> Samples:
    """Read the scores in the file of an evaluation. Raises FileNotFoundError, and ValueError for another file."""
    if not file.exists():
        raise FileNotFoundError(f"{file}: no such file.")
    try:
        table = pq.read_table(file, columns=list(_SCORES))
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise ValueError(f"{file}: cannot be read as the Parquet file of an evaluation: {error}") from error
    if missing := [name for name in _SCORES if name not in table.column_names]:
        raise ValueError(f"{file}: is not the file of an evaluation: the column {missing[0]} is missing.")
    column = {name: table[name].to_numpy() for name in _SCORES}
    n = int(column["sample"].max(initial=-1)) + 1
    if n == 0 or len(column["sample"]) % n or (column["sample"] != np.arange(len(column["sample"])) % n).any():
        raise ValueError(f"{file}: is not the file of an evaluation: its rows are not groups of {n} responses.")
    return Samples(
        column["index"][::n].astype(np.int64),
        column["prompt_id"][::n].astype(np.str_),
        column["data_source"][::n].astype(np.str_),
        column["score"].astype(np.float64).reshape(-1, n),
        column["answer_group"].astype(np.int64).reshape(-1, n),
    )


def read_texts(file: Path, indices: Sequence[int]) -> Texts:
    """Read the texts of some prompts in the file of an evaluation. Raises OSError, and ValueError for another file."""
    if not indices:
        return {}
    table = pq.read_table(file, columns=["index", "sample", *_TEXTS], filters=[("index", "in", set(indices))])
    return {(row["index"], row["sample"]): {name: row[name] for name in _TEXTS} for row in table.to_pylist()}


def read_base(file: Path) -> Samples | None:
    """Read the samples of the evaluation before the first step. None: the run has no such file, or it is damaged."""
    try:
        return read_samples(file)
    except FileNotFoundError:  # the run resumed from another one, or could not write the file
        return None
    except (OSError, ValueError) as error:
        _log.warning("the evaluation is not compared with the one before the first step: %s", error)
        return None


def select_texts(sizes: Sequence[int]) -> NDArray[np.bool_]:
    """Select the prompts whose texts are kept: [P]. `sizes`: the characters of each.

    They are evenly spaced, and have at most MAX_TEXT characters together.
    """
    count = len(sizes) if sum(sizes) <= MAX_TEXT else len(sizes) * MAX_TEXT // sum(sizes)
    rows = np.arange(count) * len(sizes) // max(1, count)
    kept = np.zeros(len(sizes), dtype=np.bool_)
    kept[rows[np.cumsum(np.asarray(sizes)[rows]) <= MAX_TEXT]] = True
    return kept


def _to_nullable(values: NDArray[Any]) -> Any:
    """An array of float32 with null for NaN."""
    return pa.array(values.astype(np.float32), from_pandas=True)


def _encode_texts(texts: Sequence[str], kept: NDArray[np.bool_]) -> Any:
    # A lone surrogate cannot be encoded as UTF-8 and becomes an escape.
    rows = [text.encode(errors="backslashreplace") if keep else None for text, keep in zip(texts, kept, strict=True)]
    return pa.array(rows, type=pa.binary()).cast(pa.string())
