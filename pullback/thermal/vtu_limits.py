"""Measure the packed arrays of a .vtu file before meshio unpacks them."""

from __future__ import annotations

import base64
import binascii
import lzma
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pullback.core.files import CHUNK, check_expansion, read_plain

HEAD = re.compile(rb"<VTKFile[^>]{0,2000}>")
INLINE = re.compile(rb"<DataArray[^>]{0,2000}>\s{0,100}([A-Za-z0-9+/=]{8,})")
APPENDED = re.compile(rb"<AppendedData([^>]{0,200})>\s{0,100}_")
OFFSET = re.compile(rb"offset=\"\s{0,20}(\d{1,15})")


def check_vtu(path: Path) -> None:
    """Raise if the arrays of a file would unpack to more than the limits allow."""
    raw = read_plain(path, "mesh_bytes")
    head = HEAD.search(raw)
    if head is None or b"compressor" not in head[0]:
        return
    check_expansion(path, _unpacked_sizes(raw, head[0]), len(raw), "mesh_bytes")


def _unpacked_sizes(raw: bytes, head: bytes) -> Iterator[int]:
    unpacker = lzma.LZMADecompressor if b"LZMA" in head else zlib.decompressobj
    try:
        for block in _blocks(raw, head):
            yield from _grown(unpacker(), block)
    except (zlib.error, lzma.LZMAError, EOFError, binascii.Error):
        # meshio will meet the same, and say so
        return


def _grown(unpacker: Any, block: bytes) -> Iterator[int]:
    """Yield the sizes of the pieces that a block unpacks to."""
    piece = unpacker.decompress(block, CHUNK)
    while piece:
        yield len(piece)
        tail = getattr(unpacker, "unconsumed_tail", b"")
        piece = b"" if unpacker.eof else unpacker.decompress(tail, CHUNK)


def _blocks(raw: bytes, head: bytes) -> Iterator[bytes]:
    """Yield the packed blocks of all arrays: (number, size, size of the last, sizes packed), then the blocks."""
    kind = (">" if b"BigEndian" in head else "<") + ("Q" if b"UInt64" in head else "I")
    for found in INLINE.finditer(raw):
        yield from _blocks_of_text(found[1], kind)
    appended = APPENDED.search(raw)
    if appended is None:
        return
    data = memoryview(raw)[appended.end() :]
    for offset in OFFSET.findall(raw[: appended.start()]):
        start = data[int(offset) :]
        if b"raw" not in appended[1]:
            yield from _blocks_of_text(bytes(start), kind)
        else:
            sizes, used = _header(bytes(start[:CHUNK]), kind)
            for size in sizes:
                yield bytes(start[used : used + size])
                used += size


def _blocks_of_text(text: bytes, kind: str) -> Iterator[bytes]:
    """Yield the blocks of an array in base64, whose header is coded by itself."""
    head = base64.b64decode(text[: CHUNK - CHUNK % 4] + b"===")
    sizes, used = _header(head, kind)
    start = 4 * -(-used // 3)
    data = base64.b64decode(text[start : start + 4 * -(-sum(sizes) // 3)] + b"===")
    for size in sizes:
        yield data[:size]
        data = data[size:]


def _header(data: bytes, kind: str) -> tuple[list[int], int]:
    """Return the sizes of the packed blocks and the length of the header that says so."""
    item = struct.calcsize(kind)
    if len(data) < item:
        return [], 0
    (count,) = struct.unpack_from(kind, data)
    count = min(count, len(data) // item - 3)
    return [size for (size,) in struct.iter_unpack(kind, data[3 * item : (3 + count) * item])], (3 + count) * item
