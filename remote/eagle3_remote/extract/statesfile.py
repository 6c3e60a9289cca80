"""The header of a safetensors file of hidden states, read with the standard library alone.

A safetensors file is 8 bytes little-endian header length, a JSON header, then the data; offsets count from the end of the header.
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import zlib

_MAX_HEADER = 1024 * 1024
ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4}
DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


@dataclasses.dataclass(frozen=True)
class Header:
    """Spans are byte offsets in the file."""

    dtype: str
    """``BF16``, ``F16`` or ``F32``."""
    shape: tuple[int, int, int]
    """tokens, layers, hidden."""
    hidden: tuple[int, int]
    ids: tuple[int, int]
    size: int


def file_size(tokens: int, layers: int, hidden_size: int, dtype: str) -> int:
    """Bytes of the file that the patch writes for so many tokens; `dtype` as in ``config.json``."""
    name = next(key for key, value in DTYPES.items() if value == dtype)
    ids, states = tokens * 8, tokens * layers * hidden_size * ITEM_BYTES[name]
    header = {
        "token_ids": {"dtype": "I64", "shape": [tokens], "data_offsets": [0, ids]},
        "hidden_states": {
            "dtype": name,
            "shape": [tokens, layers, hidden_size],
            "data_offsets": [ids, ids + states],
        },
    }
    length = len(json.dumps(header))
    return 8 + length + -length % 8 + ids + states


def read_header(path: str) -> Header:
    """Read and check the header against itself and against the file's size.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a whole file of hidden states; the text says why.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(8)
        if len(start) < 8:
            raise ValueError(f"only {size} bytes long")
        (length,) = struct.unpack("<Q", start)
        if length > min(_MAX_HEADER, size - 8):
            raise ValueError(f"its header length {length} does not fit a file of {size} bytes")
        header = json.loads(file.read(length))
    try:
        hidden, ids = header["hidden_states"], header["token_ids"]
        tokens, layers, width = hidden["shape"]
        spans = [(8 + length + begin, 8 + length + end) for begin, end in (hidden["data_offsets"], ids["data_offsets"])]
        item = ITEM_BYTES[hidden["dtype"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its header does not describe hidden_states and token_ids: {error!r}") from None
    if ids["dtype"] != "I64" or ids["shape"] != [tokens]:
        raise ValueError(f"token_ids are {ids['dtype']} {ids['shape']}, not I64 [{tokens}]")
    wanted = (tokens * layers * width * item, tokens * 8)
    if (spans[0][1] - spans[0][0], spans[1][1] - spans[1][0]) != wanted or max(spans[0][1], spans[1][1]) != size:
        raise ValueError(f"its header and its size of {size} bytes do not agree")
    return Header(hidden["dtype"], (tokens, layers, width), spans[0], spans[1], size)


def read_ids(path: str, header: Header) -> bytes:
    """The token ids, as little-endian int64."""
    with open(path, "rb") as file:
        file.seek(header.ids[0])
        return file.read(header.ids[1] - header.ids[0])


def file_crc(path: str) -> int:
    """CRC-32 of a whole file."""
    value = 0
    with open(path, "rb") as file:
        while piece := file.read(8 * 1024 * 1024):
            value = zlib.crc32(piece, value)
    return value
