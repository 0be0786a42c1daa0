"""Arrays from users: arguments, and NumPy files, which may be damaged.

What a file claims is checked before memory is taken.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from mxcomp.errors import InputError
from mxcomp.support.lazy import Lazy

Item = TypeVar("Item")

_SUFFIX = ".npy"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_KEPT = 2
"""The number of arrays of an .npz file that are cached, as slices of elements and of scales are read alternately."""


def given(value: Any, index: int) -> NDArray[Any]:
    """Returns argument `index` as a NumPy array in C order. Raises InputError for other objects."""
    try:
        return np.asarray(value, order="C")
    except (TypeError, ValueError, RuntimeError) as error:  # tensors of PyTorch raise each of them
        expected = f"argument {index}: expected a NumPy array or a number"
        raise InputError(f"{expected}, got {_type(value)}: {_line(error)}") from None


def _type(value: Any) -> str:
    """Returns the type of a value, with the type of its elements if it has one."""
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ if dtype is None else f"{type(value).__name__} of {dtype}"


def npy_bytes(values: NDArray[Any]) -> bytes:
    """Returns the contents of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def read_npy(path: str | Path) -> NDArray[Any]:
    """Returns the array of a .npy file, which stays mapped. Raises InputError."""
    try:
        return npy.open_memmap(path, "r")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except Exception as error:  # NumPy's parser raises many kinds on damaged files
        raise InputError(f"{path} is not a .npy file: {_line(error)}") from None


class Npz(Lazy[Item]):
    """The arrays of an .npz file by name, each converted when it is asked for. Reading raises InputError."""

    def __init__(self, path: str | Path, make: Callable[[NDArray[Any]], Item]) -> None:
        self._path, self._make = path, make
        try:
            self._file = zipfile.ZipFile(path)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from None
        except Exception as error:  # of zipfile, on damaged files
            raise InputError(f"cannot read {path}: not an .npz file: {_line(error)}") from None
        names = [name for name in self._file.namelist() if name.endswith(_SUFFIX)]
        read = lru_cache(_KEPT)(self._read)
        super().__init__({name.removesuffix(_SUFFIX): partial(read, name) for name in names})

    def _read(self, member: str) -> Item:
        try:
            with self._file.open(member) as stream:
                _check_size(stream, self._file.getinfo(member).file_size)
            with self._file.open(member) as stream:
                return self._make(npy.read_array(stream, allow_pickle=False))
        except Exception as error:  # of zipfile, zlib and NumPy, on damaged files
            raise InputError(f"cannot read {self._path}: {_line(error)}: '{member.removesuffix(_SUFFIX)}'") from None


def _check_size(stream: IO[bytes], size: int) -> None:
    """Raises ValueError where an array's size differs from that of its data in the file."""
    version = npy.read_magic(stream)
    if version not in _HEADERS:  # of records with names that are no ASCII, which no tensor of ours has
        raise ValueError(f"version {version} of .npy: expected {' or '.join(map(str, _HEADERS))}")
    shape, _, dtype = _HEADERS[version](stream)
    expected, found = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if expected != found and not dtype.hasobject:
        raise ValueError(f"{found} bytes, expected {expected}: {dtype} {list(shape)}")


def _line(error: Exception) -> str:
    """Returns the message of an error, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
