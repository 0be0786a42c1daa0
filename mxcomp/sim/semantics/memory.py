"""Memory instructions: the data that each mnemonic moves, and how addresses are computed (CDNA4 ISA, chapters 8–10).

Loads and stores of every address space are one `MemoryOp`; the address functions are pure and elementwise over lanes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mxcomp.sim.instruction import Kind, MemoryOp
from mxcomp.sim.semantics import small_floats as sf
from mxcomp.sim.semantics.table import Lanes, f16, f32, f64, i8, i16, i32, i64, select, u8, u16, u32, u64
from mxcomp.sim.semantics.valu_float import maximum, minimum

_SIZES = {"ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2, "dword": 4, "dwordx2": 8,
          "dwordx3": 12, "dwordx4": 16, "dwordx8": 32, "dwordx16": 64}  # fmt: skip
_LDS_SIZES = {"u8": 1, "i8": 1, "b8": 1, "u16": 2, "i16": 2, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}

_VECTOR = re.compile(
    r"(?P<space>buffer|global|flat|scratch)_(?P<kind>load|store)_(?P<lds>lds_)?"
    r"(?P<what>[us]?byte|[us]?short|dword(x[234])?)(?P<d16>_d16)?(?P<hi>_hi)?$"
)
_ATOMIC = re.compile(r"(?P<space>buffer|global|flat|s|s_buffer)_atomic_(?P<op>\w+?)(?P<wide>_x2)?$")
_SCALAR_SPACES = {"s": "scalar", "s_buffer": "scalar_buffer"}
_SCALAR = re.compile(r"(?P<space>s|s_buffer)_(?P<kind>load|store)_(?P<what>dword(x(2|4|8|16))?)$")
_LDS = re.compile(
    r"ds_(?P<kind>read|write)(?P<two>2)?(?P<st64>st64)?_(?P<what>[uib]\d+)(_tr_b(?P<tr>\d+))?(?P<d16>_d16)?(?P<hi>_hi)?$"
)
_LDS_ATOMIC = re.compile(r"ds_(?P<op>[a-z_]+?)(?P<rtn>_rtn)?_(?P<type>[uibf]\d+|bf16)$")


@cache
def parse(mnemonic: str) -> MemoryOp | None:
    """Returns the operation of a mnemonic, or None if it is no memory instruction or not implemented."""
    if mnemonic in ("ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32"):
        return MemoryOp("lds", "permute", 4)
    if match := _VECTOR.match(mnemonic):
        size = _SIZES[match["what"]]
        half = "hi" if match["hi"] else "lo" if match["d16"] else ""
        kind: Kind = "load" if match["kind"] == "load" else "store"
        return MemoryOp(match["space"], kind, size, match["what"][0] == "s" and size < 4, half, bool(match["lds"]))
    if match := _ATOMIC.match(mnemonic):
        space, name = _SCALAR_SPACES.get(match["space"], match["space"]), match["op"]
        size = 8 if match["wide"] or name.endswith("f64") else 4
        return MemoryOp(space, "atomic", size, atomic=name, returns=True) if name in ATOMICS else None
    if match := _SCALAR.match(mnemonic):
        scalar_kind: Kind = "load" if match["kind"] == "load" else "store"
        return MemoryOp(_SCALAR_SPACES[match["space"]], scalar_kind, _SIZES[match["what"]])
    if match := _LDS.match(mnemonic):
        return _lds(match)
    if match := _LDS_ATOMIC.match(mnemonic):
        name = _LDS_NAMES.get(f"{match['op']}_{match['type']}")
        size = 8 if match["type"].endswith("64") else 4
        return MemoryOp("lds", "atomic", size, atomic=name, returns=bool(match["rtn"])) if name else None
    return None


def _lds(match: re.Match[str]) -> MemoryOp | None:
    size = _LDS_SIZES.get(match["what"])
    if size is None:
        return None
    half = "hi" if match["hi"] else "lo" if match["d16"] else ""
    return MemoryOp(
        "lds",
        "load" if match["kind"] == "read" else "store",
        size,
        signed=match["what"][0] == "i",
        half=half,
        accesses=2 if match["two"] else 1,
        stride=size * (64 if match["st64"] else 1),
        transpose=int(match["tr"] or 0),
    )


# -- addresses


@dataclass(frozen=True, slots=True)
class BufferResource:
    """The descriptor in four SGPRs (CDNA4 ISA, table "Buffer Resource Descriptor")."""

    base: int
    stride: int
    records: int
    swizzled: bool
    adds_thread: bool

    @classmethod
    def unpack(cls, w0: int, w1: int, w2: int, w3: int) -> BufferResource:
        return cls(w0 | (w1 & 0xFFFF) << 32, w1 >> 16 & 0x3FFF, w2, bool(w1 >> 31), bool(w3 >> 23 & 1))

    def is_linear(self, indexed: bool) -> bool:
        """Returns whether addresses follow `buffer_address`.

        Swizzling exchanges bits of an index and an offset, so without an index the swizzle bit changes nothing:
        HipKittens sets it, with a stride, in resources that its kernels read as raw buffers.
        """
        return not self.adds_thread and not (self.swizzled and indexed)


def buffer_address(
    resource: BufferResource, index: Lanes | None, offset: Lanes, scalar_offset: int
) -> tuple[Lanes, Lanes]:
    """Returns the address of each lane (int64), and the bytes from there to the end of the buffer (≤ 0: out of range).

    Raw buffers compare offset with num_records − soffset; structured ones (index and stride) compare the index with
    num_records and the offset with the stride. `offset` is int64, VGPR + immediate, of which 32 bits count: compilers
    add immediates to negative VGPRs (Mesa's ACO states that this works). Other sums are not wrapped.
    """
    offset = offset & 0xFFFFFFFF
    address = resource.base + scalar_offset + offset
    if index is None or not resource.stride:
        return address, resource.records - scalar_offset - offset
    room = np.where(index < resource.records, resource.stride - offset, 0)
    return address + index * resource.stride, room


def lanes_64(low: Lanes, high: Lanes) -> Lanes:
    """Returns two registers as int64."""
    return (low.astype(u64) | high.astype(u64) << 32).view(i64)


def direct_lds_address(m0: int, offset: int, lane: Lanes, size: int) -> Lanes:
    """Returns the LDS address of a direct load's data: 18 bits of M0 + the instruction's offset + slots of at least 4
    bytes."""
    return (m0 & 0x3FFFF) + offset + lane * max(4, size)


def signed_offset(offset: int, bits: int) -> int:
    """Returns a signed immediate."""
    return (offset & (1 << bits) - 1 ^ 1 << bits - 1) - (1 << bits - 1)


# -- data


def extend(raw: Lanes, signed: bool) -> Lanes:
    """Returns the bytes uint8[lanes, size] as registers uint32[registers, lanes]."""
    size = raw.shape[1]
    if size >= 4:
        return np.ascontiguousarray(raw).view(u32).T
    part: Any = np.ascontiguousarray(raw).view(u8 if size == 1 else u16)[:, 0]
    if signed:
        part = part.view(i8 if size == 1 else i16).astype(i32)
    return part.astype(u32)[None]


def to_bytes(words: Lanes, size: int, half: str) -> Lanes:
    """Returns the registers uint32[registers, lanes] as the bytes uint8[lanes, size] that are stored."""
    if size < 4 and half == "hi":
        words = words >> 16
    return np.ascontiguousarray(words.T).view(u8)[:, :size]


def merge_half(new: Lanes, old: Lanes, half: str) -> Lanes:
    """Replaces 16 bits of a register, as a d16 load does."""
    if half == "lo":
        return old & u32(0xFFFF0000) | new & 0xFFFF
    return old & u32(0xFFFF) | new << 16 if half == "hi" else new


def transpose(raw: Lanes, bits: int) -> Lanes:
    """Returns registers of the transposed tile from uint8[64, n] in row order (ds_read_*_tr_b*).

    In each group of 16 lanes the data are a matrix of 16 columns of `bits`-wide elements, row after row; lane i of the
    group gets column i. (Published for b16; the other widths follow by analogy.)
    """
    count = raw.shape[1] * 8 // bits
    elements = np.unpackbits(raw, axis=1, bitorder="little").reshape(4, count, 16, bits)
    columns = np.ascontiguousarray(elements.transpose(0, 2, 1, 3)).reshape(64, count * bits)
    return np.ascontiguousarray(np.packbits(columns, axis=1, bitorder="little")).view(u32).T


# -- atomics: (old, operand) → new, on unsigned Python ints; the result is cut to the width


_BITS: dict[int, type] = {4: u32, 8: u64}


def _float(dtype: type, operation: Callable[[Lanes, Lanes], Lanes]) -> Callable[[int, int, int], int]:
    """Applies a float operation to each part of the operand that has the width of `dtype`."""

    def apply(old: int, operand: int, size: int) -> int:
        a: Lanes = np.array([old], _BITS[size]).view(dtype)
        b: Lanes = np.array([operand], _BITS[size]).view(dtype)
        result: Lanes = np.asarray(operation(a, b), dtype)
        result = np.where(result != result, dtype(np.nan), result)
        return int(result.view(_BITS[size])[0])

    return apply


def _add_bfloat_pair(old: int, operand: int, size: int) -> int:
    a, b = (sf.bfloat_to_f32(np.array([x], u32).view(u16)) for x in (old, operand))
    return int(sf.f32_to_bfloat(a + b).view(u32)[0])


def _signed(x: Any, size: int) -> Any:
    return (x ^ 1 << 8 * size - 1) - (1 << 8 * size - 1)


INTEGER_ATOMICS: dict[str, Callable[[Any, Any, int], Any]] = {
    "swap": lambda old, x, size: x,
    "add": lambda old, x, size: old + x,
    "sub": lambda old, x, size: old - x,
    "rsub": lambda old, x, size: x - old,
    "and": lambda old, x, size: old & x,
    "or": lambda old, x, size: old | x,
    "xor": lambda old, x, size: old ^ x,
    "umin": lambda old, x, size: select(old < x, old, x),
    "umax": lambda old, x, size: select(old > x, old, x),
    "smin": lambda old, x, size: select(_signed(old, size) < _signed(x, size), old, x),
    "smax": lambda old, x, size: select(_signed(old, size) > _signed(x, size), old, x),
    "inc": lambda old, x, size: select(old >= x, 0, old + 1),
    "dec": lambda old, x, size: select((old == 0) | (old > x), x, old - 1),
}
"""The atomics of integers, in a form that a compiling engine can trace, as scalar functions are."""

ATOMICS: dict[str, Callable[[int, int, int], int]] = INTEGER_ATOMICS | {
    "add_f32": _float(f32, lambda a, b: a + b),
    "min_f32": _float(f32, minimum),
    "max_f32": _float(f32, maximum),
    "add_f64": _float(f64, lambda a, b: a + b),
    "min_f64": _float(f64, minimum),
    "max_f64": _float(f64, maximum),
    "pk_add_f16": _float(f16, lambda a, b: a + b),
    "pk_add_bf16": _add_bfloat_pair,
    "cmpswap": lambda old, x, size: x,  # taken when the compare value, which follows the data, equals the old one
}

_LDS_NAMES = {"wrxchg_b32": "swap", "wrxchg_b64": "swap"}
for _bits in (32, 64):
    _LDS_NAMES |= {f"{name}_u{_bits}": name for name in ("add", "sub", "rsub", "inc", "dec")}
    _LDS_NAMES |= {f"{name}_b{_bits}": name for name in ("and", "or", "xor")}
    _LDS_NAMES |= {f"{name}_{sign}{_bits}": f"{to}{name}" for name in ("min", "max") for sign, to in ("uu", "is")}
_LDS_NAMES |= {f"{name}_f{bits}": f"{name}_f{bits}" for name in ("add", "min", "max") for bits in (32, 64)}
_LDS_NAMES |= {f"pk_add_{kind}": f"pk_add_{kind}" for kind in ("f16", "bf16")}
