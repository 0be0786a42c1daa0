"""Loops with four waves of 128 × 128 each, as assembler text whose order of instructions is laid out here.

AMD writes such loops in Gluon and needs plugins for the compiler to order them (ROCm/gfx950-gluon-tutorials,
kernels/gemm/intra_wave). Their plan is public, and this is it: a and b are split into halves, the 256 × 256 tile into
four quarters. A step along K has four stages, each of which multiplies for one quarter, reads the half that the next
one needs from LDS, and has the half that nobody needs any more loaded into it anew, two steps ahead. What is read and
loaded is issued behind matrix instructions, one for each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, product

import assembler
import numpy as np

from corpus.device import Launch
from corpus.operands import Bytes

WAVES = 4
TILE = 256
ROW = 128
"""Bytes of a row in a step, whatever the format; rows of a half."""
BLOCK = 1024 + 32
"""What a wave loads at once, eight rows that are 16 apart, and a gap that puts neighbours on different banks."""
HALF = 16 * BLOCK
SCALES = 1024
"""Of a half in a step, in the order in which lanes read them."""
TOP = {"a": 0, "b": 4 * HALF}
"""Where operands lie in LDS, each with two halves in two buffers; then scales."""
SCALES_TOP = 8 * HALF
LDS = SCALES_TOP + 8 * SCALES


@dataclass(frozen=True)
class Kind:
    """What is multiplied.

    Attributes:
        matrix: The instruction: a result, elements of b and of a, scales of both and which bytes of them.
        depth: Matrix instructions along K in a step.
        dwords: Of an instruction's elements.
        cycles: Of an instruction.
        step: Elements along K.
    """

    name: str
    matrix: str
    depth: int
    dwords: int
    cycles: int
    step: int
    scaled: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "mxfp4", "v_mfma_scale_f32_16x16x128_f8f6f4 {0}, {1}, {2}, {0}, {3}, {4} {5} cbsz:4 blgp:4",
            depth=2, dwords=4, cycles=16, step=256, scaled=True,
        ),
        Kind(
            "fp8", "v_mfma_f32_16x16x128_f8f6f4 {0}, {1}, {2}, {0} cbsz:1 blgp:1",
            depth=1, dwords=8, cycles=32, step=128,
        ),
        Kind("f16", "v_mfma_f32_16x16x32_f16 {0}, {1}, {2}, {0}", depth=2, dwords=4, cycles=16, step=64),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Half:
    """One half of an operand, and its registers.

    Attributes:
        resource: First scalar register of a buffer resource, of its elements and of its scales.
    """

    operand: str
    number: int
    elements: int
    scales: int
    resource: tuple[int, int]

    def place(self, buffer: int) -> int:
        """Where it lies in LDS."""
        return TOP[self.operand] + (2 * buffer + self.number) * HALF

    def place_of_scales(self, buffer: int) -> int:
        return SCALES_TOP + (4 * buffer + 2 * (self.operand == "b") + self.number) * SCALES


A = Half("a", 0, 0, 128, (20, 28)), Half("a", 1, 32, 130, (20, 28))
B = Half("b", 0, 64, 132, (24, 32)), Half("b", 1, 96, 134, (24, 32))
LOADS = range(136, 140)
"""Where a lane loads from: four times for a half."""
SCALE_LOAD = 140
READS = {("a", 0): 141, ("a", 1): 142, ("b", 0): 143, ("b", 1): 144}
"""Where a lane reads, by operand and buffer."""
SCALE_READS = {"a": 145, "b": 146}
VECTORS = 152
QUARTERS = ((0, 0), (1, 0), (0, 1), (1, 1))
"""Halves of a and b, in the order in which they are multiplied."""
LOADED = B[0], A[0], A[1], B[1]
"""Halves in the order in which they are needed no more."""
ON = [f"s_add_u32 s{at}, s{at}, {ROW if at < 42 else SCALES}" for at in range(40, 44)]
"""To the next step's loads."""

_HEAD = """
.text
.globl loop
.p2align 8
.type loop,@function
loop:
  s_load_dwordx8 s[4:11], s[0:1], 0x0
  s_load_dwordx4 s[12:15], s[0:1], 0x20
  s_load_dword s16, s[0:1], 0x30
  v_and_b32_e32 v148, 63, v0                 ; lane
  v_readfirstlane_b32 s17, v0
  s_lshr_b32 s17, s17, 6                     ; wave: along a and along b
  s_lshr_b32 s18, s17, 1
  s_and_b32 s19, s17, 1
  s_waitcnt lgkmcnt(0)                       ; s14: bytes of a row, s15: steps, s16: columns of c
  s_lshl_b32 s46, s14, 8                     ; a's and b's tile
  s_mul_i32 s47, s2, s46
  s_mul_hi_u32 s48, s2, s46
  s_add_u32 s20, s4, s47
  s_addc_u32 s21, s5, s48
  s_mul_i32 s47, s3, s46
  s_mul_hi_u32 s48, s3, s46
  s_add_u32 s24, s6, s47
  s_addc_u32 s25, s7, s48
  s_mov_b32 s22, s46
  s_mov_b32 s26, s46
  s_lshl_b32 s46, s15, 11                    ; their scales
  s_mul_i32 s47, s2, s46
  s_add_u32 s28, s8, s47
  s_addc_u32 s29, s9, 0
  s_mul_i32 s47, s3, s46
  s_add_u32 s32, s10, s47
  s_addc_u32 s33, s11, 0
  s_mov_b32 s30, s46
  s_mov_b32 s34, s46
  s_lshl_b32 s46, s16, 10                    ; c's tile: 256 rows
  s_mul_i32 s47, s2, s46
  s_lshl_b32 s48, s3, 10
  s_add_u32 s47, s47, s48
  s_add_u32 s36, s12, s47
  s_addc_u32 s37, s13, 0
  s_sub_u32 s38, s46, s48
  s_mov_b32 s23, 0x27000
  s_mov_b32 s27, s23
  s_mov_b32 s31, s23
  s_mov_b32 s35, s23
  s_mov_b32 s39, s23
  s_mov_b32 s40, 0                           ; where the next step lies: of both halves, and of both halves' scales
  s_lshl_b32 s41, s14, 7
  s_mov_b32 s42, 0
  s_lshl_b32 s43, s15, 10
  s_mul_i32 s44, s17, {block}                ; where a wave's loads go, and those of scales
  s_lshl_b32 s45, s17, 8
  s_lshr_b32 s46, s15, 1                     ; iterations
  s_sub_u32 s46, s46, 1
  v_lshrrev_b32_e32 v149, 3, v148            ; loads: row wave + 4 · number + 16 · (lane / 8)
  v_lshl_add_u32 v149, v149, 4, s17
  v_mul_lo_u32 v136, v149, s14
  v_and_b32_e32 v149, 7, v148
  v_lshl_add_u32 v136, v149, 4, v136
  s_lshl_b32 s47, s14, 2
  v_add_u32_e32 v137, s47, v136
  v_add_u32_e32 v138, s47, v137
  v_add_u32_e32 v139, s47, v138
  v_lshl_add_u32 v140, v148, 2, s45
  v_and_b32_e32 v149, 15, v148               ; reads: rows lane mod 16, 16 bytes from 16 · (lane / 16)
  v_mul_u32_u24_e32 v149, {block}, v149
  v_lshrrev_b32_e32 v150, 4, v148
  v_lshl_add_u32 v149, v150, 4, v149
  s_lshl_b32 s47, s18, 9
  s_lshl_b32 s48, s19, 9
  v_add_u32_e32 v141, s47, v149
  v_add_u32_e32 v142, {buffer}, v141
  v_add_u32_e32 v143, s48, v149
  v_add_u32_e32 v143, {b}, v143
  v_add_u32_e32 v144, {buffer}, v143
  v_lshlrev_b32_e32 v149, 3, v148
  v_add_u32_e32 v149, {scales}, v149
  v_add_u32_e32 v145, s47, v149
  v_add_u32_e32 v146, s48, v149
""".format(block=BLOCK, buffer=2 * HALF, b=TOP["b"], scales=SCALES_TOP)

_STORES = """
  s_lshl_b32 s16, s16, 2                     ; bytes of c's rows
  v_and_b32_e32 v149, 15, v148
  s_lshl_b32 s47, s18, 6
  v_add_u32_e32 v149, s47, v149
  v_mul_lo_u32 v149, v149, s16
  v_lshrrev_b32_e32 v150, 4, v148
  v_lshl_add_u32 v149, v150, 4, v149
  s_lshl_b32 s48, s19, 8
  v_add_u32_e32 v149, s48, v149
  s_nop 15
"""

_TAIL = """
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel loop
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_y 1
  .amdhsa_kernarg_size 52
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_next_free_vgpr {all}
  .amdhsa_next_free_sgpr 50
  .amdhsa_accum_offset {vectors}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: loop
    .symbol: loop.kd
    .args:
      - {{ .address_space: global, .name: a, .offset: 0, .size: 8, .value_kind: global_buffer }}
      - {{ .address_space: global, .name: b, .offset: 8, .size: 8, .value_kind: global_buffer }}
      - {{ .address_space: global, .name: a_scale, .offset: 16, .size: 8, .value_kind: global_buffer }}
      - {{ .address_space: global, .name: b_scale, .offset: 24, .size: 8, .value_kind: global_buffer }}
      - {{ .address_space: global, .name: c, .offset: 32, .size: 8, .value_kind: global_buffer }}
      - {{ .name: row_bytes, .offset: 40, .size: 4, .value_kind: by_value }}
      - {{ .name: steps, .offset: 44, .size: 4, .value_kind: by_value }}
      - {{ .name: columns, .offset: 48, .size: 4, .value_kind: by_value }}
    .kernarg_segment_size: 52
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 56
    .vgpr_count: {all}
    .agpr_count: 256
    .max_flat_workgroup_size: 256
...
.end_amdgpu_metadata
""".format(lds=LDS, all=VECTORS + 256, vectors=VECTORS)


@dataclass
class Writer:
    """The text, and which loads are in flight.

    Attributes:
        flight: A half and a buffer for each load, in order.
    """

    kind: Kind
    lines: list[str] = field(default_factory=list)
    flight: list[tuple[Half, int]] = field(default_factory=list)

    def wait_for(self, half: Half, buffer: int) -> None:
        """Until all waves' loads of a half, and what this wave has read from LDS, are there."""
        last = max(k for k, load in enumerate(self.flight) if load == (half, buffer))
        self.lines.append(f"s_waitcnt vmcnt({len(self.flight) - last - 1}) lgkmcnt(0)")
        self.lines.append("s_barrier")
        del self.flight[: last + 1]

    def loads(self, half: Half, buffer: int) -> Iterator[str]:
        """Of a half's next step into LDS."""
        at = 40 + half.number
        for number, row in enumerate(LOADS):
            self.flight.append((half, buffer))
            yield f"s_add_u32 m0, s44, {half.place(buffer) + 4 * number * BLOCK}"
            yield f"buffer_load_dwordx4 v{row}, {_scalars(half.resource[0])}, s{at} offen lds"
        if self.kind.scaled:
            self.flight.append((half, buffer))
            yield f"s_add_u32 m0, s45, {half.place_of_scales(buffer)}"
            yield f"buffer_load_dword v{SCALE_LOAD}, {_scalars(half.resource[1])}, s{at + 2} offen lds"

    def reads(self, half: Half, buffer: int) -> Iterator[str]:
        """Of a half from LDS."""
        address, chunks = READS[half.operand, buffer], self.kind.depth * self.kind.dwords // 4
        if self.kind.scaled:
            offset = half.place_of_scales(buffer) - SCALES_TOP
            yield f"ds_read_b64 {_vectors(half.scales, 2)}, v{SCALE_READS[half.operand]} offset:{offset}"
        for chunk in range(chunks):
            for tile in range(4):
                row = half.elements + 4 * (tile * chunks + chunk)
                offset = half.number * HALF + tile * ROW + chunk * 64
                yield f"ds_read_b128 {_vectors(row, 4)}, v{address} offset:{offset}"

    def products(self, quarter: int) -> Iterator[str]:
        kind, (a, b) = self.kind, QUARTERS[quarter]
        for k in range(kind.depth):
            for x in range(4):
                for y in range(4):
                    of_a, of_b = (
                        _vectors(half.elements + kind.dwords * (tile * kind.depth + k), kind.dwords)
                        for half, tile in ((A[a], x), (B[b], y))
                    )
                    selected = f"op_sel:[{y & 1},{x & 1},0] op_sel_hi:[{y >> 1},{x >> 1},0]"
                    yield kind.matrix.format(
                        _result(quarter, x, y), of_b, of_a, f"v{B[b].scales + k}", f"v{A[a].scales + k}", selected
                    )

    def stage(self, quarter: int, beside: list[str]) -> None:
        """A quarter's products, behind each what is beside them: an instruction for every 16 cycles."""
        rest, each = iter(beside), self.kind.cycles // 16
        for line in self.products(quarter):
            self.lines.append(line)
            self.lines += islice(rest, each)
        assert next(rest, None) is None, "more beside the products than there is room for"

    def step(self, buffer: int, last: bool = False, more: bool = True) -> None:
        """Four stages. `last`: nothing is read for a next step; `more`: halves are loaded for the one after it."""
        other = 1 - buffer
        read = ((A[1], buffer), (B[1], buffer), (B[0], other), (A[0], other))
        for quarter in range(4):
            wanted = [] if last and quarter > 1 else [read[quarter]]
            for half in wanted:
                self.wait_for(*half)
            if last and quarter == 2:
                self.lines.append("s_waitcnt lgkmcnt(0)")
            reads = [line for half in wanted for line in self.reads(*half)]
            loads = list(self.loads(LOADED[quarter], buffer)) if more else []
            if more and quarter == 3:
                loads += ON
            self.stage(quarter, _alternating(reads, loads))


def _alternating(some: list[str], others: list[str]) -> list[str]:
    """Of two lists by turns, then the rest."""
    both = min(len(some), len(others))
    pairs = [line for pair in zip(some[:both], others[:both], strict=True) for line in pair]
    return pairs + some[both:] + others[both:]


def _result(quarter: int, x: int, y: int) -> str:
    first = 4 * (16 * quarter + 4 * x + y)
    return f"a[{first}:{first + 3}]"


def _scalars(first: int) -> str:
    return f"s[{first}:{first + 3}]"


def _vectors(first: int, count: int) -> str:
    return f"v[{first}:{first + count - 1}]"


def text(kind: Kind) -> str:
    """A kernel: c = a · bᵀ in f32, with an even number of steps, at least four."""
    w = Writer(kind)
    loads = []
    for buffer in range(2):
        loads += [line for half in LOADED for line in w.loads(half, buffer)] + ON
    w.lines += _alternating(loads, [f"v_accvgpr_write_b32 a{row}, 0" for row in range(256)])
    w.wait_for(A[0], 0)
    w.lines += [*w.reads(B[0], 0), *w.reads(A[0], 0), "again:"]
    before = list(w.flight)
    w.step(0)
    w.step(1)
    assert w.flight == before
    w.lines += ["s_sub_u32 s46, s46, 1", "s_cmp_lg_u32 s46, 0", "s_cbranch_scc1 again"]
    w.step(0, more=False)
    w.step(1, more=False, last=True)
    w.lines += _STORES.splitlines()
    for a, x in product(range(2), range(4)):
        w.lines.append(f"s_mul_i32 s47, s16, {128 * a + 16 * x}")
        for b, y in product(range(2), range(4)):
            result, offset = _result(QUARTERS.index((a, b)), x, y), 512 * b + 64 * y
            w.lines.append(f"buffer_store_dwordx4 {result}, v149, s[36:39], s47 offen offset:{offset}")
    return _HEAD + "\n".join(w.lines) + _TAIL


@cache
def code_object(name: str) -> bytes:
    return assembler.code_object(text(KINDS[name]))


def launch(addresses: Mapping[str, int], m: int, n: int, steps: int) -> Launch:
    """Of a, b, a_scale, b_scale and c; rows of a and b have so many steps and no more."""
    pointers = (addresses[name] for name in ("a", "b", "a_scale", "b_scale", "c"))
    kernarg = struct.pack("<5Q3i", *pointers, ROW * steps, steps, n)
    return Launch("loop", (m // TILE, n // TILE, 1), (64 * WAVES, 1, 1), kernarg)


def scales_as_read(scales: Bytes) -> Bytes:
    """[rows, blocks] as lanes read them: by half, step, wave, lane (block and row), and of a lane by block and row."""
    rows, blocks = scales.shape
    parts = scales.reshape(rows // 128, 2, 4, 16, blocks // 8, 2, 4)
    return np.ascontiguousarray(parts.transpose(0, 4, 1, 6, 3, 5, 2))
