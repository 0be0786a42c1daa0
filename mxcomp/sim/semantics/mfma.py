"""Matrix instructions v_mfma_* and v_mfma_scale_* (CDNA4 ISA, chapter 7); `sparse` has v_smfmac_*.

**Layout.** Lane l = dim·g + r: A row or B column r, K group g. Dense operands hold K = g·n … g·n + n − 1, n elements
per lane. Operands of f8f6f4 hold 32 elements: FP4 and FP6 contiguous, FP8 as two halves of 16 elements that lie K/2
apart. The scale of lane (g, r) belongs to K = 32g … 32g + 31 of row r, whatever the format. The result: 16×16: lane
holds column r, rows 4g … 4g + 3; 32×32: rows 8i + 4g … + 3 for i = 0 … 3.

**Accumulation**, so that every engine gives the same bits:

- scaled and unscaled f8f6f4: the 32 products of a block of K are summed in float64, in order of K. That sum is exact
  whatever the order (for FP4, FP6 and E4M3 it has at most 41 bits) unless an operand is E5M2. It is multiplied by the A
  scale times the B scale (powers of two), the blocks are added in order of K in float64, then C is added in float64,
  and the result is rounded once to float32.
- the other floats: products in float64, summed in order of K in float64, C added last, rounded once to float32.
- integers: exact, modulo 2³².

A NaN result is 0x7FC00000. Hardware adds in another order and precision. An E8M0 scale of 0xFF is NaN. EXEC is ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np

from mxcomp.formats import unpack_bits
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.semantics import sparse
from mxcomp.sim.semantics.small_floats import BY_SELECTOR, FORMATS, decode_scale, value_table
from mxcomp.sim.semantics.table import Lanes, f16, f32, f64, i8, i32, i64, u8, u16, u32

_NAME = re.compile(
    r"v_(?:mfma|mfma_scale|smfmac)_(?P<out>f32|i32)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_(?P<types>[a-z0-9_]+)$"
)

_BITS = {"f32": 32, "f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8}


@dataclass(frozen=True, slots=True)
class Mfma:
    """The shape and types of a matrix instruction.

    Attributes:
        dim: 16 or 32, rows and columns.
        k: Depth.
        a, b: Element types by AMD's names (for f8f6f4: fp8, bf8, fp6, bf6 or fp4, from cbsz and blgp).
        scaled: Takes E8M0 scales.
        blocks: The operands are f8f6f4's.
        sparse: Half of A is there (`sparse`).
    """

    dim: int
    k: int
    a: str
    b: str
    scaled: bool
    blocks: bool
    sparse: bool = False

    @property
    def groups(self) -> int:
        """The number of groups of lanes along K."""
        return 64 // self.dim

    @property
    def per_lane(self) -> int:
        return self.k // self.groups

    @property
    def is_integer(self) -> bool:
        return self.a == "i8"

    @property
    def result_registers(self) -> int:
        return self.dim * self.dim // 64

    def bits(self, kind: str) -> int:
        """Returns the bits of an element."""
        return FORMATS[kind].bits if self.blocks else _BITS[kind]

    def operand_registers(self, kind: str) -> int:
        return max(1, self.per_lane * self.bits(kind) // 32)

    @property
    def a_registers(self) -> int:
        return self.operand_registers(self.a) // (2 if self.sparse else 1)

    @property
    def passes(self) -> int:
        """The duration in passes of 4 cycles (AMD's published rates; llvm-mca agrees but for FP8 in f8f6f4)."""
        if self.blocks:
            narrow = all(FORMATS[kind].bits < 8 for kind in (self.a, self.b))
            return (4 if narrow else 8) * (self.dim // 16)
        return (8 if self.a == "f32" else 4) * (self.dim // 16)

    @property
    def is_exact(self) -> bool:
        """Whether the sum over a block of 32 is exact in float64."""
        return "bf8" not in (self.a, self.b)

    @property
    def format(self) -> str:
        """The name in counters."""
        return self.a if self.a == self.b else f"{self.a}×{self.b}"


@cache
def parse(mnemonic: str, cbsz: int = 0, blgp: int = 0) -> Mfma | None:
    """Returns the instruction of a mnemonic, or None. f64 and several blocks are not implemented."""
    match = _NAME.match(mnemonic)
    if match is None or match["m"] != match["n"] or match["m"] not in ("16", "32"):
        return None
    dim, k = int(match["m"]), int(match["k"])
    scaled = "_scale_" in mnemonic
    if match["types"] == "f8f6f4":
        a, b = _selected(cbsz), _selected(blgp)
        return None if a is None or b is None else Mfma(dim, k, a, b, scaled, blocks=True)
    types = match["types"].split("_")
    if len(types) > 2 or any(kind not in _BITS for kind in types) or cbsz or blgp or k < 64 // dim:
        return None
    is_sparse = mnemonic.startswith("v_smfmac")
    if is_sparse and not (set(types) <= {"fp8", "bf8"} and (dim, k) in sparse.SHAPES):
        return None
    return Mfma(dim, k, types[0], types[-1], scaled, blocks=False, sparse=is_sparse)


def of(instruction: Instruction) -> Mfma | None:
    """Returns the matrix instruction if it is one that is implemented."""
    shape = parse(instruction.mnemonic, instruction.flag("cbsz"), instruction.flag("blgp"))
    broadcast = instruction.flag("abid") and shape is not None and not shape.blocks  # set in every scaled instruction
    return None if broadcast else shape


def _selected(code: int) -> str | None:
    fmt = BY_SELECTOR.get(code)
    return next((name for name, known in FORMATS.items() if known is fmt), None)


def scale_shifts(instruction: Instruction) -> tuple[int, int]:
    """Returns bit positions of the A and B scales: the byte's number is op_sel (lower bit) and op_sel_hi (upper
    bit)."""
    low, high = instruction.flag("opsel"), instruction.flag("opsel_hi")
    return 8 * (low & 1 | (high & 1) << 1), 8 * (low >> 1 & 1 | (high >> 1 & 1) << 1)


def elements(words: Lanes, kind: str, count: int) -> Lanes:
    """Decodes registers uint32[n, 64] to float64[64, count], in register order."""
    raw = np.ascontiguousarray(words.T).view(u8)
    if kind == "f32":
        return raw.view(f32)[:, :count].astype(f64)
    if kind == "f16":
        return raw.view(f16)[:, :count].astype(f64)
    if kind == "bf16":
        return (raw.view(u16)[:, :count].astype(u32) << 16).view(f32).astype(f64)
    if kind == "i8":
        return raw.view(i8)[:, :count].astype(f64)
    fmt = FORMATS[kind]
    raw = raw[:, : count * fmt.bits // 8]
    if fmt.bits == 4:  # as `unpack_bits` does, in two thirds of the time
        return np.take(value_table(fmt), np.stack((raw & 15, raw >> 4), -1).reshape(64, count))
    return np.take(value_table(fmt), raw if fmt.bits == 8 else unpack_bits(raw, fmt))


def matrix(words: Lanes, kind: str, shape: Mfma) -> Lanes:
    """Returns the registers of A or B as float64[dim, K]."""
    lanes = elements(words, kind, shape.per_lane)
    if shape.blocks and FORMATS[kind].bits == 8:
        split = lanes.reshape(shape.groups, shape.dim, 2, 16)
        return split.transpose(1, 2, 0, 3).reshape(shape.dim, shape.k)
    return lanes.reshape(shape.groups, shape.dim, -1).transpose(1, 0, 2).reshape(shape.dim, shape.k)


def scales(codes: Lanes, shape: Mfma) -> Lanes:
    """Returns one E8M0 code per lane as float64[dim, K/32]."""
    return decode_scale(np.broadcast_to(codes, 64)).reshape(shape.groups, shape.dim).T


def to_lanes(result: Lanes, dim: int) -> Lanes:
    """Converts [row, column] to registers [n, 64]."""
    if dim == 16:
        return result.reshape(4, 4, 16).transpose(1, 0, 2).reshape(4, 64)
    return result.reshape(4, 2, 4, 32).transpose(0, 2, 1, 3).reshape(16, 64)


def multiply_blocks(a: Lanes, b: Lanes, a_scale: Lanes, b_scale: Lanes, exact: bool) -> Lanes:
    """Returns the block-scaled product float64[dim, dim] of two [dim, K]. It is exact, so the order within a block does
    not matter."""
    total = np.zeros((a.shape[0], b.shape[0]))
    for block in range(a.shape[1] // 32):
        k = slice(32 * block, 32 * block + 32)
        sums = a[:, k] @ b[:, k].T if exact else multiply(a[:, k], b[:, k])
        total = total + sums * (a_scale[:, block, None] * b_scale[None, :, block])
    return total


def multiply(a: Lanes, b: Lanes) -> Lanes:
    """Returns the product float64[dim, dim], summed in order of K (NumPy adds the outermost axis slice by slice)."""
    return np.add.reduce(a.T[:, :, None] * b.T[:, None, :], axis=0)


def accumulate(product: Lanes, c: Lanes, shape: Mfma) -> Lanes:
    """Returns the result registers (bits) from the product and C's registers (bits), both in lanes' order."""
    if shape.is_integer:
        return (product.astype(i64) + c.view(i32)).astype(u32)
    result = (product + c.view(f32)).astype(f32)
    return np.where(result != result, u32(0x7FC00000), result.view(u32))
