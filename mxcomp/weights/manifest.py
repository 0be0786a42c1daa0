"""The parameters that a program reads in packed layouts: their sources, and how they are packed offline.

Compiled with packed parameters, a program asks for keys such as `fc.weight.packed.rhs.128x512.1f0c2a9b` in place of
`fc.weight`. The manifest of the compilation lists every parameter that the program reads, and for packed ones the
source, where the operand lies in it, and the layout; `mxcomp.weights.checkpoint.pack` makes them of a checkpoint's
tensors, byte for byte as the compiler does with constants.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from mxcomp.errors import InputError
from mxcomp.formats import E8M0, MX_BLOCK, element_format
from mxcomp.layout import LHS, OPERAND_NAMES, RHS, DataTiledLayout, layout_from
from mxcomp.layout.swizzle import TileSwizzle
from mxcomp.support.version import __version__
from mxcomp.weights.views import Bytes, View

SCALE_TYPE = E8M0.mlir_type
FLAG = "--packed-parameters"
"""The flag of mxcomp-compile that writes the manifest."""

Positive = Annotated[int, Meta(ge=1)]

_FORMAT, _VERSION = "mxcomp parameters", 2
_BITS = {"i1": 8, "complex<f32>": 64, "complex<f64>": 128}
_WIDTH = re.compile(r"(?:b?f|[su]?i)(?P<width>\d+)(?:E\d+M\d+\w*)?")


@dataclass(frozen=True)
class TensorType:
    """A static tensor type: shape and MLIR element type."""

    shape: tuple[Annotated[int, Meta(ge=0)], ...]
    element: str

    @property
    def byte_shape(self) -> tuple[int, ...]:
        """The shape with its last dimension in bytes."""
        *outer, last = self.shape or (1,)
        return (*outer, last * element_bits(self.element) // 8)

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{size}x' for size in self.shape)}{self.element}>"


def element_bits(element: str) -> int:
    """Returns the bits that an element of an MLIR type takes in memory. Raises ValueError."""
    found = _WIDTH.fullmatch(element)
    if element not in _BITS and found is None:
        raise ValueError(f"unknown element type '{element}'")
    return _BITS.get(element) or int(found["width"] if found else 0)


@dataclass(frozen=True)
class Packing:
    """The way in which a source parameter becomes one operand of a scaled matmul, [(batch,) rows, k], in a layout.

    `batch` is empty where the operand has none. `view` says where in the source it lies.
    """

    source: str
    type: TensorType
    operand: Annotated[str, Meta(pattern=f"^({'|'.join(OPERAND_NAMES[:-1])})$")]
    element: str
    rows: Positive
    k: Annotated[int, Meta(ge=1, multiple_of=MX_BLOCK)]
    batch: Annotated[tuple[Positive, ...], Meta(max_length=1)]
    view: View
    layout: dict[str, Any]

    @property
    def tiles(self) -> DataTiledLayout:
        return layout_from(self.layout)

    @property
    def holds_elements(self) -> bool:
        """Whether the operand is elements, not scales."""
        return OPERAND_NAMES.index(self.operand) in (LHS, RHS)

    @property
    def swizzle(self) -> TileSwizzle:
        return self.tiles.packing(OPERAND_NAMES.index(self.operand), self.element if self.holds_elements else None)

    @property
    def plain_view(self) -> View:
        """The view of a source that is stored in the operand's own order."""
        return View.row_major(math.prod(self.batch), self.rows, 8 * math.prod(self.matrix_shape[1:]))

    @property
    def misfit(self) -> str:
        """Returns why the view cannot be one of the operand in the source; "" if it can."""
        size = math.prod(self.type.byte_shape)
        problem = self.view.misfit(self.plain_view, element_bits(self.element), size)
        return problem and f"view of {self.rows} × {self.k} {self.operand} in {self.type}: {problem}"

    @property
    def matrix_shape(self) -> tuple[int, ...]:
        """The shape of the operand, without its batch, as `TileSwizzle.pack` takes it.

        It counts bytes: [rows, units of K, bytes], or [rows, scales].
        """
        if not self.holds_elements:
            return self.rows, self.k // MX_BLOCK
        unit = self.swizzle.tile_shape[-1]
        return self.rows, self.k // unit, unit * element_format(self.element).bits // 8

    @property
    def packed(self) -> TensorType:
        """The type of the packed tensor in `mxcomp-materialise`: elements as bytes, scales as they are."""
        columns = self.matrix_shape[1]
        outer = [self.swizzle.tiles(dim, size) for dim, size in enumerate((self.rows, columns))]
        index = OPERAND_NAMES.index(self.operand)
        shape = self.tiles.multiplied_shape(index, self.tiles.packed_shape(index, outer))
        static = (*self.batch, *(size for size in shape if size is not None))
        if not self.holds_elements:
            return TensorType(static, SCALE_TYPE)
        return TensorType((*static[:-1], self.tiles.shape.lane_bytes(self.element)), "i8")

    @property
    def key(self) -> str:
        """Returns the packed parameter's key, with its tile of rows and K: equal for equal bytes of a source.

        The digest is of what decides on them: type, size, view and swizzle, whatever else differs between layouts.
        """
        rows, columns = self.swizzle.tile_shape[:2]
        tile = f"{rows}x{columns * self.k // self.matrix_shape[1]}"
        meaning = [self.element, self.rows, self.k, self.swizzle.expand_shape, self.swizzle.permutation]
        if self.swizzle.multiples != (1, 1):
            meaning.append(self.packed.shape)
        digits = 8
        if self.batch or self.view != self.plain_view:
            meaning += [self.batch, astuple(self.view)]
            digits = 16  # there may be many views of one source, of which no two must meet
        digest = hashlib.sha256(json.dumps(meaning).encode()).hexdigest()[:digits]
        return f"{self.source}.packed.{self.operand}.{tile}.{digest}"

    def pack(self, source: Bytes) -> Bytes:
        """Returns the packed parameter's bytes, uint8 of `packed.byte_shape`, from the source's, of any shape.

        Raises ValueError where the source is too short.
        """
        rows = self.view.take(source, self.element if self.holds_elements else None)
        packed = [self.swizzle.pack(matrix) for matrix in rows.reshape(-1, *self.matrix_shape)]
        return (np.stack(packed) if self.batch else packed[0]).reshape(self.packed.byte_shape)


@dataclass(frozen=True)
class Parameter:
    """A parameter that a program reads; without `packing` it is read as it is in the checkpoint."""

    scope: str
    key: str
    type: TensorType
    packing: Packing | None = None

    @property
    def source(self) -> tuple[str, TensorType]:
        """The key and type in the checkpoint."""
        return (self.packing.source, self.packing.type) if self.packing else (self.key, self.type)


@dataclass(frozen=True)
class Manifest:
    """All parameters that a program reads, sorted by scope and key."""

    parameters: tuple[Parameter, ...] = ()

    @property
    def scopes(self) -> list[str]:
        return sorted({parameter.scope for parameter in self.parameters})

    def of(self, scope: str | None) -> Iterable[Parameter]:
        """Returns the parameters of a scope; None: of the only one. Raises InputError."""
        if not self.parameters:
            raise InputError("the program reads no parameters")
        if scope is None and len(self.scopes) > 1:
            raise InputError(f"the program has parameters in the scopes {', '.join(self.scopes)}: choose one (--scope)")
        if scope is not None and scope not in self.scopes:
            raise InputError(f"the program has no parameters in scope '{scope}', but in {', '.join(self.scopes)}")
        return [parameter for parameter in self.parameters if scope in (None, parameter.scope)]

    def entries(self) -> dict[str, Any]:
        """Returns the manifest as entries for JSON."""
        return {"format": _FORMAT, "version": _VERSION} | asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.entries(), indent=2)

    @staticmethod
    def from_json(text: str | bytes, name: str = "manifest") -> Manifest:
        """Inverts `to_json`. Raises InputError where the text is damaged or of another version of mxcomp."""
        try:
            entries = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name} is not a manifest of parameters: {error}") from None
        return Manifest.from_entries(entries, name)

    @staticmethod
    def from_entries(entries: Any, name: str = "manifest") -> Manifest:
        """Inverts `entries`. Raises InputError as `from_json` does."""
        again = f"compile the program again with {FLAG}"
        if not isinstance(entries, dict) or entries.get("format") != _FORMAT:
            raise InputError(f"{name} is not a manifest of parameters: mxcomp-compile {FLAG}={name} writes one")
        if entries.get("version") != _VERSION:
            raise InputError(f"{name} has version {entries.get('version')}, expected {_VERSION}: {again}")
        listed = entries.get("parameters")
        if not isinstance(listed, list):
            raise InputError(f"{name} is not a manifest of parameters: no list of parameters")
        parameters = []
        for index, entry in enumerate(listed):
            try:
                parameters.append(_parameter(entry))
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(f"{name}: parameter {index} is damaged: {error}: {again}") from None
        return Manifest(tuple(parameters))


def _parameter(entry: Any) -> Parameter:
    """Parses a parameter. Raises KeyError, TypeError or ValueError."""
    result = msgspec.convert(entry, Parameter)
    if result.packing is None:
        element_bits(result.type.element)
        return result
    packing = packing_from(entry["packing"])
    if (packing.key, packing.packed) != (result.key, result.type):
        ours = f"'{packing.key}' : {packing.packed} to this version of mxcomp ({__version__})"
        raise ValueError(f"'{result.key}' : {result.type} is {ours}")
    return result


def packing_from(entry: Any) -> Packing:
    """Returns a packing from its entries in the manifest. Raises KeyError, TypeError or ValueError."""
    packing = msgspec.convert(entry, Packing)
    if problem := packing.misfit:
        raise ValueError(problem)
    return packing
