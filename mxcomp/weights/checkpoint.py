"""Reads published checkpoints: tensors of .safetensors, .irpa, .gguf and .npz files as bytes, and MX weights in them.

    checkpoint = Checkpoint.read("model-00001.safetensors", "model-00002.safetensors")
    weights = checkpoint.mx_weights("model.layers.0.mlp.experts.down_proj[3]")  # expert 3 of GPT-OSS
    weights.elements, weights.scales                                            # uint8[N, K/2], uint8[N, K/32]

MXFP4 weights have one meaning, and names by the tool that wrote them (`NAMINGS`): two codes a byte, the even K in the
low nibble, and an E8M0 scale for each 32 of them. AMD Quark and compressed-tensors (mxfp4-pack-quantized; mxfp6 and
mxfp8 likewise) have [N, K/2] and [N, K/32]; GPT-OSS, of all experts in one, [experts, N, K/32, 16] and
[experts, N, K/32]. A tensor is found under any of the names; `name[3]` is a slice of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from iree import runtime as rt

from mxcomp.errors import InputError
from mxcomp.formats import E8M0, MX_BLOCK
from mxcomp.run.arrays import Npz
from mxcomp.support.lazy import Lazy
from mxcomp.weights import ggml, paging
from mxcomp.weights.archive import Later, Streamed, save
from mxcomp.weights.manifest import Manifest, Packing, Parameter, TensorType
from mxcomp.weights.views import Bytes

__all__ = ["NAMINGS", "Checkpoint", "MxWeights", "Tensor", "pack", "save"]

NAMINGS = {
    "Quark": (".weight", ".weight_scale"),
    "GPT-OSS": ("_blocks", "_scales"),
    "GPT-OSS, original": (".blocks", ".scales"),
    "compressed-tensors": (".weight_packed", ".weight_scale"),
}
"""The suffixes of the names of elements and scales that follow a weight's name."""

_BYTES = {"U8", "I8"}
_SMALL = {
    "f4E2M1FN": "F4",
    "f6E2M3FN": "F6_E2M3",
    "f6E3M2FN": "F6_E3M2",
    "f8E4M3FN": "F8_E4M3",
    "f8E5M2": "F8_E5M2",
    E8M0.mlir_type: "F8_E8M0",
}
_DTYPES: dict[str, set[str]] = {
    **{kind: _BYTES | {name} for kind, name in _SMALL.items()},
    **{kind: _BYTES.union(_SMALL.values()) for kind in ("i8", "si8", "ui8")},
    **{kind: {kind.upper()} for kind in ("f16", "bf16", "f32", "f64")},
    **{f"{sign}i{width}": {f"I{width}", f"U{width}"} for sign in ("", "s", "u") for width in (16, 32, 64)},
    "i1": {"BOOL"},
}
"""The types of tensors in safetensors files, by the MLIR element types that a program may read them as."""

_SLICED = re.compile(r"(?P<name>.+?)(?P<slices>(?:\[\d+\])*)", re.S)


@dataclass(frozen=True)
class Tensor:
    """A stored tensor: its bytes, uint8 with the last dimension in bytes, and its type, named as in safetensors.

    Archives of IREE know neither types (None) nor shapes (flat).
    """

    data: Bytes
    dtype: str | None = None

    def misfit(self, expected: TensorType) -> str:
        """Returns why this cannot be a tensor of the expected type; "" if it can.

        Dimensions may be split differently as long as rows stay rows: [N, K/32, 16] bytes are [N, K/2].
        """
        known = _DTYPES.get(expected.element)
        if self.dtype is not None and known is not None and self.dtype not in known:
            return f"it has type {self.dtype}, expected {' or '.join(sorted(known))}"
        size = math.prod(expected.byte_shape)
        if self.data.size != size:
            return f"it has {self.data.size} bytes, expected {size}"
        ours, theirs = _boundaries(self.data.shape), _boundaries(expected.byte_shape)
        if not (ours <= theirs or theirs <= ours):
            return f"it has {list(self.data.shape)} bytes, expected {list(expected.byte_shape)}: is it transposed?"
        return ""


def _boundaries(shape: tuple[int, ...]) -> set[int]:
    """Returns the number of elements within each dimension. A shape that splits the dimensions of another has more of
    these."""
    return {math.prod(shape[i:]) for i in range(len(shape) + 1)}


_FORMATS = {name: name.rpartition("_")[2] for name in _SMALL.values()} | {"F4": "E2M1"}
"""The element formats by the types of elements in safetensors files."""
_BITS_OF_BYTES = {("", 4): "E2M1", (".weight_packed", 6): "E2M3"}
"""Element formats of elements stored as bytes: by the suffix of the name, "" for any, and bits. compressed-tensors
packs 6 bits as E2M3 only (compressors/mxfp6/helpers.py there)."""


@dataclass(frozen=True)
class MxWeights:
    """Elements, uint8[…, N, K · bits / 8], and E8M0 scales, uint8[…, N, K/32].

    `format` is that of the elements, as in `mxcomp.formats`; None where the file does not say it.
    """

    elements: Bytes
    scales: Bytes
    format: str | None = None


class Checkpoint(Lazy[Tensor]):
    """Tensors by their names in the files; `name` is the checkpoint's own, for messages."""

    def __init__(self, tensors: Mapping[str, Tensor], name: str = "checkpoint") -> None:
        super().__init__({})
        self.name = name
        self._add(tensors)

    def _add(self, tensors: Mapping[str, Tensor]) -> None:
        self._makers |= {key: partial(tensors.__getitem__, key) for key in tensors}

    @staticmethod
    def read(*paths: str | Path) -> Checkpoint:
        """Returns the tensors of one or several files, which stay mapped. Those of .npz files are read when they are
        asked for.

        Raises InputError.
        """
        checkpoint = Checkpoint({}, ", ".join(map(str, paths)))
        for path in map(Path, paths):
            found = _read(path)
            if twice := sorted(checkpoint.keys() & found.keys()):
                raise InputError(f"{path} and a file before it have a tensor '{twice[0]}' both")
            checkpoint._add(found)
        return checkpoint

    def find(self, key: str) -> Tensor:
        """Returns the tensor called `key`, as it is or in another naming, or the slice that it names. Raises
        InputError."""
        if key in self:
            return self[key]
        name, slices = _split(key)
        stored = self._stored(name)
        if stored is None:
            raise InputError(f"{self.name}: no tensor '{name}', neither by this name nor by one that means the same")
        tensor = self[stored]
        for index in slices:
            if tensor.data.ndim < 2 or index >= len(tensor.data):
                raise InputError(f"{self.name}: no '{key}': '{stored}' has {list(self[stored].data.shape)} bytes")
            tensor = Tensor(tensor.data[index], tensor.dtype)
        return tensor

    def _stored(self, name: str) -> str | None:
        """Returns the name of a tensor in the files. Another naming needs elements and scales: `x.weight` need not be
        MX."""
        if name in self:
            return name
        for ends in NAMINGS.values():
            for part, end in enumerate(ends):
                stem = name.removesuffix(end)
                found = self._naming(stem) if stem != name else None
                if found is not None:
                    return stem + found[part]
        return None

    def _naming(self, stem: str) -> tuple[str, str] | None:
        return next((ends for ends in NAMINGS.values() if all(stem + end in self for end in ends)), None)

    def mx_weights(self, name: str) -> MxWeights:
        """Returns elements and scales of a weight by its name: `layer`, `experts.down_proj` or `experts.down_proj[3]`.

        Raises InputError.
        """
        stem, slices = _split(name)
        ends = self._naming(stem)
        if ends is None:
            expected = ", ".join(f"'{stem}{first}' and '{stem}{second}'" for first, second in NAMINGS.values())
            raise InputError(f"{self.name}: no MX weights '{stem}': expected {expected}")
        elements, scales = (self.find(stem + end + "".join(f"[{i}]" for i in slices)) for end in ends)
        lead = scales.data.shape[:-1]
        size = elements.data.size / max(scales.data.size, 1)
        if elements.data.shape[: len(lead)] != lead or size not in [MX_BLOCK * bits // 8 for bits in (4, 6, 8)]:
            raise InputError(
                f"{self.name}: '{name}': elements of {list(elements.data.shape)} bytes do not belong to scales of "
                f"{list(scales.data.shape)}: expected [N, K/2] or [N, K/32, 16], and [N, K/32]"
            )
        for tensor, kinds in ((elements, _DTYPES["i8"]), (scales, _DTYPES[E8M0.mlir_type])):
            if tensor.dtype is not None and tensor.dtype not in kinds:
                raise InputError(f"{self.name}: '{name}': type {tensor.dtype}, expected {' or '.join(sorted(kinds))}")
        bits = int(size) * 8 // MX_BLOCK
        known = _FORMATS.get(elements.dtype or "") or _BITS_OF_BYTES.get((ends[0], bits))
        return MxWeights(elements.data.reshape(*lead, -1), scales.data, known or _BITS_OF_BYTES.get(("", bits)))

    def mx_names(self, name: str) -> tuple[str, ...]:
        """Returns the names of elements and scales of a weight in the files; nothing where there are none."""
        stem = _split(name)[0]
        return tuple(stem + end for end in self._naming(stem) or ())


def pack(manifest: Manifest, checkpoint: Checkpoint, scope: str | None = None) -> Streamed:
    """Returns the parameters that a program reads, uint8, by key; of one scope, where it has several. Each is packed
    when it is asked for, so that `save` has only one of them in memory.

    Raises InputError where the checkpoint lacks a tensor, or has it in another type or shape.
    """
    packed = {}
    for parameter in manifest.of(scope):
        key, expected = parameter.source
        tensor = checkpoint.find(key)
        if problem := tensor.misfit(expected):
            raise InputError(f"{checkpoint.name}: '{key}' cannot be read as {expected}: {problem}")
        packed[parameter.key] = _packed(parameter, partial(checkpoint.find, key), tensor.data.nbytes)
    return Streamed(packed)


def _packed(parameter: Parameter, find: Callable[[], Tensor], size: int) -> Later:
    """Returns one packed parameter. Tensors of `find` are not cached: they may have been read, or converted, for this
    call."""
    if parameter.packing is None:
        return Later(size, lambda: find().data)
    return Later(math.prod(parameter.packing.packed.byte_shape), partial(_pack, parameter.packing, find))


def _pack(packing: Packing, find: Callable[[], Tensor]) -> Bytes:
    data = find().data
    packed = packing.pack(data)
    paging.give_back(data)
    return packed


def _split(key: str) -> tuple[str, list[int]]:
    """Returns the name and slices of `name[1][2]`."""
    found = _SLICED.fullmatch(key)
    return (found["name"], [int(i) for i in re.findall(r"\d+", found["slices"])]) if found else (key, [])


def _read(path: Path) -> Mapping[str, Tensor]:
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise InputError(f"cannot read {path}: expected a file ending in {', '.join(_READERS)}")
    try:
        with path.open("rb"):
            return reader(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (RuntimeError, ValueError, LookupError, OverflowError) as error:
        raise InputError(f"cannot read {path}: {error}") from None


def _read_archive(path: Path) -> dict[str, Tensor]:
    """Reads files that IREE reads itself: bytes without shapes and types."""
    index = rt.ParameterIndex()
    index.load(str(path))
    return {key: Tensor(_stored_bytes(entry)) for key, entry in index.items()}


def _stored_bytes(entry: rt.ParameterIndexEntry) -> Bytes:
    if entry.is_splat:
        return np.resize(np.frombuffer(entry.splat_pattern, np.uint8), entry.length)
    return rt.parameter_index_entry_as_numpy_flat_ndarray(entry)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """Reads bytes with IREE, which knows all types; shapes and types from the file's header."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise InputError(f"{path} needs the package safetensors: pip install 'mxcomp[checkpoint]'") from None
    try:
        with safe_open(path, framework="numpy") as opened:
            headers = {key: opened.get_slice(key) for key in opened.keys()}  # noqa: SIM118 (it is no dictionary)
            kinds = {key: (header.get_shape(), header.get_dtype()) for key, header in headers.items()}
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    return {
        key: Tensor(_shaped(tensor.data, kinds[key][0]), kinds[key][1]) for key, tensor in _read_archive(path).items()
    }


def _shaped(data: Bytes, shape: list[int]) -> Bytes:
    """Returns flat bytes in the shape of their tensor, the last dimension in bytes."""
    return data.reshape(*shape[:-1], data.size // max(math.prod(shape[:-1]), 1))


def _read_gguf(path: Path) -> Mapping[str, Tensor]:
    """Reads with shapes and types, MXFP4 and BF16 among them, by the package gguf; without it, what IREE supports."""
    try:
        return ggml.read(path, Tensor)
    except ImportError:
        pass
    try:
        return _read_archive(path)
    except NotImplementedError as error:
        raise InputError(f"{path} needs the package gguf: pip install 'mxcomp[checkpoint]' ({error})") from None


def _read_npz(path: Path) -> Mapping[str, Tensor]:
    return Npz(path, _from_numpy)


def _from_numpy(array: np.ndarray) -> Tensor:
    kinds = {"f": "F", "i": "I", "u": "U", "c": "C"}
    dtype = "BOOL" if array.dtype.kind == "b" else None
    if array.dtype.kind in kinds:
        dtype = f"{kinds[array.dtype.kind]}{8 * array.itemsize}"
    little = np.atleast_1d(array).astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return Tensor(little.view(np.uint8), dtype)


_READERS = {
    ".safetensors": _read_safetensors,
    ".irpa": _read_archive,
    ".gguf": _read_gguf,
    ".npz": _read_npz,
}
