"""Writes archives of IREE parameters (.irpa) tensor by tensor: a packed tensor is in memory only while it is written.

The layout is that of runtime/src/iree/schemas/parameter_archive.h in IREE: a header, a table of entries, their names,
and then the data, each entry aligned. IREE's own writer in Python takes all tensors at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mxcomp.errors import InputError
from mxcomp.support import files
from mxcomp.support.lazy import Lazy
from mxcomp.support.progress import tracked
from mxcomp.weights import paging
from mxcomp.weights.views import Bytes

_HEADER = struct.Struct("<4sHHQQQQ6Q")
"""The layout of the header: magic, major and minor version, size of the header, next header, flags, number of entries;
offset and length of the segments of entries, metadata and storage."""
_ENTRY = struct.Struct("<QIQ4QQQQ")
"""The layout of an entry: size, type, flags; offset and length of name and metadata; alignment; offset and length in
the storage."""
_DATA_ENTRY = 2
_ENTRY_ALIGNMENT, _DATA_ALIGNMENT, _FILE_ALIGNMENT = 16, 64, 4096
_PIECE = 2**24


@dataclass(frozen=True)
class Later:
    """A tensor whose bytes are made when they are asked for; `size` is known before."""

    size: int
    make: Callable[[], Bytes]


class Streamed(Lazy[Bytes]):
    """Tensors that are made one by one, each time that they are asked for; `sizes` are known before."""

    def __init__(self, tensors: Mapping[str, Later]) -> None:
        super().__init__({key: tensor.make for key, tensor in tensors.items()})
        self.sizes = {key: tensor.size for key, tensor in tensors.items()}


def save(path: str | Path, tensors: Mapping[str, Bytes]) -> None:
    """Writes an archive, completely or not at all, with a progress bar on a terminal. Raises InputError."""
    sizes = tensors.sizes if isinstance(tensors, Streamed) else {key: each.nbytes for key, each in tensors.items()}
    head, offsets = _head(sizes)
    with files.writing(path) as part, part.open("r+b") as file:
        file.write(head)
        for key, size in tracked(tuple(sizes.items()), f"writing {Path(path).name}"):
            data = np.ascontiguousarray(tensors[key]).reshape(-1).view(np.uint8)
            if data.size != size:
                raise InputError(f"cannot write {path}: '{key}' has {data.size} bytes, expected {size}")
            file.seek(offsets[key])
            for start in range(0, size, _PIECE):
                file.write(data[start : start + _PIECE].data)
            paging.give_back(data)
        end = max((offsets[key] + size for key, size in sizes.items()), default=len(head))
        file.truncate(_aligned(end, _FILE_ALIGNMENT))


def _head(sizes: Mapping[str, int]) -> tuple[bytes, dict[str, int]]:
    """Returns the bytes in front of the data, and the offset of each tensor's data in the file."""
    names = [key.encode() for key in sizes]
    step = _aligned(_ENTRY.size, _ENTRY_ALIGNMENT)
    table = _aligned(_HEADER.size, _ENTRY_ALIGNMENT)
    metadata = table + step * len(names)
    storage = _aligned(metadata + sum(map(len, names)), _FILE_ALIGNMENT)
    entries, offsets, name_at, at = [], {}, 0, 0
    for name, (key, size) in zip(names, sizes.items(), strict=True):
        entry = _ENTRY.pack(_ENTRY.size, _DATA_ENTRY, 0, name_at, len(name), 0, 0, _DATA_ALIGNMENT, at, size)
        entries.append(entry.ljust(step, b"\0"))
        offsets[key] = storage + at
        name_at, at = name_at + len(name), _aligned(at + size, _DATA_ALIGNMENT)
    segments = (table, step * len(names), metadata, name_at, storage, at)
    header = _HEADER.pack(b"IRPA", 0, 0, _HEADER.size, 0, 0, len(names), *segments)
    return b"".join((header.ljust(table, b"\0"), *entries, *names)).ljust(storage, b"\0"), offsets


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
