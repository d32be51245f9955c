"""Messages with the changes of weights: their size, and that a receiver finds what did not arrive as it was sent."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from torch import Tensor

from rlt_trainer.rollout.buckets import Bucket, pack_buckets
from rlt_trainer.rollout.weight_channel import Received
from rlt_trainer.rollout.weight_delta import WHOLE_EVERY, Bytes, Decoder, Encoder, End, Message

Weights = dict[str, Tensor]
Sent = list[tuple[Message, Bytes]]
LIMIT = 200_000
"""Bytes of a bucket: the weights below are in three."""


def build_weights(dtype: torch.dtype = torch.bfloat16) -> Weights:
    """Weights of several sizes, also with an odd number of bytes, of one element and of none."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (300, 257), "b": (7,), "c": (), "d": (0, 4), "e": (2**17 + 1,), "f": (64, 64)}
    weights = {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}
    return {**weights, "flags": torch.zeros(5, dtype=torch.uint8)}


def change(weights: Weights, share: float, seed: int) -> None:
    """Change the lowest bit of some elements, about this share of all."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in weights.values():
        chosen = torch.rand(tensor.shape, generator=generator) < share
        tensor.view(-1).view(torch.uint8)[:: tensor.itemsize] ^= chosen.view(-1).to(torch.uint8)


def encode(encoder: Encoder, weights: Weights, version: int) -> tuple[Sent, End]:
    """Encode a transfer. Each bucket is in the same memory."""
    memory = torch.zeros(2**20, dtype=torch.uint8)
    buckets = pack_buckets(weights.items(), lambda size: memory[:size], limit=LIMIT)
    return [encoder.encode(bucket) for bucket in buckets], encoder.end(version)


def decode(decoder: Decoder, sent: Sent, end: End) -> tuple[Weights, Received]:
    received: Weights = {}
    for message, data in sent:
        received |= dict(decoder.decode(message, data).unpack())
    return received, decoder.end(end)


def equal(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and read(one[name]) == read(other[name]) for name in one
    )


def read(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def measure(sent: Sent) -> int:
    return sum(len(data) for _, data in sent)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_bytes_are_equal_after_200_transfers(dtype: torch.dtype) -> None:
    weights = build_weights(dtype)
    whole = sum(tensor.nbytes for tensor in weights.values())
    encoder = Encoder()
    decoder = Decoder()
    sizes = []
    for version in range(201):
        change(weights, share=[0.0, 0.02, 0.5, 1.0][version % 4], seed=version)
        sent, end = encode(encoder, weights, version)
        assert len(sent) > 2
        received, result = decode(decoder, sent, end)
        assert result == Received(version)
        assert equal(received, weights)
        sizes.append(measure(sent))
    assert [version for version, size in enumerate(sizes) if size == whole][:1] == [0]
    assert sizes[WHOLE_EVERY] == whole
    assert max(sizes) == whole


def test_changes_of_few_elements_are_small() -> None:
    weights = build_weights()
    encoder = Encoder()
    whole = measure(encode(encoder, weights, 0)[0])
    assert measure(encode(encoder, weights, 1)[0]) < whole / 1000, "without a change"
    change(weights, share=0.01, seed=1)
    assert measure(encode(encoder, weights, 2)[0]) < 0.02 * whole


def test_weights_that_appear_and_change_their_shapes_arrive() -> None:
    encoder = Encoder()
    decoder = Decoder()
    weights = build_weights()
    for version, changed in enumerate([weights, {**weights, "b": torch.ones(9), "g": torch.ones(50)}, weights, {}]):
        received, result = decode(decoder, *encode(encoder, changed, version))
        assert result == Received(version)
        assert equal(received, changed)


class Pair:
    """Both ends after a transfer, and a second one that was sent."""

    def __init__(self) -> None:
        self.weights = build_weights()
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.first = encode(self.encoder, self.weights, 0)
        decode(self.decoder, *self.first)
        change(self.weights, share=0.02, seed=1)
        self.sent, self.end = encode(self.encoder, self.weights, 1)

    def receive(self, sent: Sent) -> tuple[str, ...]:
        """Receive the second transfer as `sent`. Return what is damaged."""
        received, result = decode(self.decoder, sent, self.end)
        assert equal(received, self.weights) == (not result.damaged)
        return result.damaged

    def find_later_damage(self) -> tuple[str, ...]:
        """Return what is damaged in a third transfer, which arrives as it was sent."""
        return decode(self.decoder, *encode(self.encoder, self.weights, 2))[1].damaged


def flip(data: Bytes, byte: int) -> Bytes:
    flipped = data.copy()
    flipped[byte] ^= 1
    return flipped


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0], ids=["counts", "positions", "values"])
def test_a_flipped_byte_is_found(part: float) -> None:
    pair = Pair()
    message, data = pair.sent[0]
    pair.sent[0] = message, flip(data, int(part * (len(data) - 1)))
    assert pair.receive(pair.sent) == ("message 4: its bytes have changed",)


def test_a_message_with_another_hash_of_a_tensor_is_found() -> None:
    """The receiver's copy of a tensor has changed."""
    pair = Pair()
    held = pair.decoder._held[0]
    held.data[held.layouts[0].start + 100] ^= 1
    assert pair.receive(pair.sent) == ("a",)


@pytest.mark.parametrize("lost", range(3))
def test_a_lost_message_is_found(lost: int) -> None:
    pair = Pair()
    del pair.sent[lost]
    (damage,) = pair.receive(pair.sent)
    assert damage == (
        "message 6: it did not arrive" if lost == 2 else f"message {5 + lost}: expected message {4 + lost}"
    )


@pytest.mark.parametrize("earlier", [True, False], ids=["of the transfer before", "of this transfer"])
def test_a_replayed_message_is_found(earlier: bool) -> None:
    pair = Pair()
    pair.sent[1] = pair.first[0][1] if earlier else pair.sent[0]
    assert pair.receive(pair.sent)[0] == f"message {1 if earlier else 4}: expected message 5"


def test_reordered_messages_are_found() -> None:
    pair = Pair()
    pair.sent[:2] = pair.sent[1::-1]
    assert len(pair.receive(pair.sent)) == 3


def test_changes_are_refused_after_damage_and_a_lost_transfer() -> None:
    damaged = Pair()
    damaged.sent[0] = damaged.sent[0][0], flip(damaged.sent[0][1], 0)
    damaged.receive(damaged.sent)
    assert "message 8: it changes weights of version 1, and the engine has None" in damaged.find_later_damage()
    lost = Pair()
    renumbered = Decoder()
    renumbered._number = lost.sent[0][0].number
    damage = decode(renumbered, lost.sent, lost.end)[1].damaged
    assert damage[0] == "message 4: it changes weights of version 0, and the engine has None"


def test_whole_tensors_repair_a_damaged_receiver() -> None:
    pair = Pair()
    pair.sent[0] = pair.sent[0][0], flip(pair.sent[0][1], 0)
    pair.receive(pair.sent)
    for version in count(2):
        sent, end = encode(pair.encoder, pair.weights, version)
        received, result = decode(pair.decoder, sent, end)
        if all(message.base is None for message, _ in sent):
            break
        assert result.damaged
    assert version == WHOLE_EVERY
    assert result == Received(version)
    assert equal(received, pair.weights)


def test_a_first_bucket_that_does_not_arrive_is_found() -> None:
    decoder = Decoder()
    sent, end = encode(Encoder(), build_weights(), 0)
    sent[0] = replace(sent[0][0], digest=b""), sent[0][1]
    _, result = decode(decoder, sent, end)
    assert result.damaged[:2] == ("message 0: its bytes have changed", "message 1: the bucket before it is not known")


def test_an_empty_bucket_has_no_bytes() -> None:
    message, data = Encoder().encode(Bucket.pack([("d", torch.zeros(0, 4))], lambda size: torch.zeros(size).byte()))
    assert message.size == len(data) == 0
    assert isinstance(data, np.ndarray)
