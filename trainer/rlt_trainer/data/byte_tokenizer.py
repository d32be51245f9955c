"""A tokenizer of the 256 bytes and six special tokens. Every text round-trips, and no download is necessary."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

BOS = "<|bos|>"
EOS = "<|eos|>"
PAD = "<|pad|>"
ROLE_MARKS = ("<|system|>", "<|user|>", "<|assistant|>")

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% if tools %}{{ '<|system|>' + (tools | map(attribute='function') | list | tojson) + eos_token }}{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'tool' %}"
    "{{ '<|user|><tool_response>' + message['content'] + '</tool_response>' + eos_token }}"
    "{% elif message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role ' + message['role'] + ': use system, user, assistant or tool') }}"
    "{% else %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def build_byte_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer of 262 tokens: ids 0 to 255 are the bytes, then bos, eos, pad and the three role tokens.

    It is BPE without merges over GPT-2's printable substitutes for bytes. (BPE's byte fallback needs no substitutes,
    but its decoder drops a whole response if one byte is not UTF-8. This decoder writes U+FFFD for that byte alone.)
    Encoding adds no special tokens.
    """
    vocabulary = {_substitute(byte): byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, normalized=False) for mark in (BOS, EOS, PAD, *ROLE_MARKS)])
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        additional_special_tokens=list(ROLE_MARKS),
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _substitute(byte: int) -> str:
    """Return the ByteLevel pre-tokenizer's character for a byte: the byte itself if printable, else from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if byte in printable:
        return chr(byte)
    return chr(0x100 + sum(other not in printable for other in range(byte)))
