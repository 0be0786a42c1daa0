"""Loops as peers write them, replayed with rules as they were measured: how much of a loop is matrix instructions.

Published shares are those of ROCm/gfx950-gluon-tutorials for gfx950 (thread traces; of kernels with eight waves those
that a stock compiler made), from the lowest to the highest that is published of a kind.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from corpus.loops import KERNELS
from corpus.loops.inputs import PRODUCTS, problem
from rules import TRACED, trace_of
from spread import quick_if

from mxcomp.sim import Device
from mxcomp.sim.timing.examination import Examiner
from mxcomp.sim.timing.loops import Loop, hottest
from mxcomp.sim.timing.trace import Trace
from mxcomp.sim.timing.workgroup import of_waves, run

MACHINE = TRACED._replace(return_bytes=45.0)
LATENCY = 1000.0
"""What memory gives a compute unit whose L2 has most of what it loads (GT docs/tcp_bound_tile_model.md)."""

PUBLISHED = {
    "8 waves, mxfp4 16x16x128": (57.0, 67.5),
    "8 waves, mxfp4 16x16x128, scales combined": (73.6, 80.0),
    "8 waves, mxfp4 32x32x64, scales combined": (91.0, 98.9),
    "8 waves, fp8": (96.2, 99.8),
    "8 waves, f16": (99.8, 99.8),
    "4 waves, mxfp4": (93.7, 94.5),
    "4 waves, fp8": (99.2, 99.5),
    "4 waves, f16": (97.4, 99.0),
    "8 waves, attention": (61.2, 68.4),
}
"""Per cent. Of attention: loops that rescale at every tile and that no plugin has ordered."""
STEPS = 20
QUICK = {"8 waves, mxfp4 16x16x128, scales combined", "8 waves, f16", "4 waves, mxfp4"}


@cache
def traced(name: str) -> Trace:
    """A workgroup."""
    examiner = Examiner()
    if name in PRODUCTS:
        given = problem(name, STEPS, np.random.default_rng(0))
        given.machine.launch([given.code], [given.launch], engine=examiner)
    else:
        device, kernel, keys = Device("gfx950", memory_bytes=1 << 24), KERNELS["attention"], 64 * 17
        buffers = {name: device.alloc(256 * keys) for name in ("q", "k", "v", "o")}
        sizes = {"queries": 256, "heads": 1, "keys": keys, "scale": 0.1}
        launch = kernel.launch({name: buffer.address for name, buffer in buffers.items()}, sizes)
        (loaded,) = device.load(kernel.code).kernels.values()
        device.launch(
            loaded, launch.grid, launch.block, launch.kernarg, dynamic_lds=launch.dynamic_lds, engine=examiner
        )
    ((trace, _),) = examiner.examination.parts
    return trace


def replayed(trace: Trace, resident: int = 1) -> Loop:
    issued = np.zeros(resident * trace.steps)
    run(trace, resident, MACHINE, LATENCY, issued=issued)
    loop = hottest(trace, of_waves(trace, issued))
    assert loop is not None
    return loop


@pytest.mark.parametrize("name", quick_if(QUICK.__contains__, PUBLISHED))
def test_share_of_matrix_instructions(name: str) -> None:
    """Within 6 points of what was published of that kind."""
    low, high = PUBLISHED[name]
    assert low - 6 <= 100 * replayed(traced(name)).share <= high + 6


def test_four_waves_count_as_peers() -> None:
    loop = replayed(traced("4 waves, mxfp4"))
    assert loop.share >= 0.92
    assert loop.matrix == 2 * 2048  # two steps of 128 instructions of 16 cycles


@pytest.mark.slow
def test_bank_conflicts_of_a_whole_launch() -> None:
    """SQ_LDS_BANK_CONFLICT of 4096 × 4096 × 8192 with 32×32×64: 1.18 million."""
    conflicts = traced("8 waves, mxfp4 32x32x64, scales combined").counters["lds.conflict.cycles"]
    assert conflicts / STEPS * (8192 // 256) * (4096 // 256) ** 2 == pytest.approx(1.18e6, rel=0.005)


# -- a rule that only two waves on a SIMD show

_BESIDE = """
  v_readfirstlane_b32 s8, v1
  s_cmp_ge_u32 s8, 4096
  s_cbranch_scc1 reads
.rept 400
  v_mfma_scale_f32_16x16x128_f8f6f4 a[0:3], v[100:103], v[104:107], a[0:3], v108, v109 op_sel_hi:[0,0,0] cbsz:4 blgp:4
  v_mfma_scale_f32_16x16x128_f8f6f4 a[4:7], v[100:103], v[104:107], a[4:7], v108, v109 op_sel_hi:[0,0,0] cbsz:4 blgp:4
.endr
  s_endpgm
reads:
.rept 100
  ds_read_b128 v[8:11], v1
.endr
"""


def test_lds_reads_beside_another_waves_matrix_instructions() -> None:
    """GT kernels/gemm/inter_wave/a4w4: about 21 cycles, up to 32, where SIMDs of a pair multiply in phase.

    The matrix instructions lose nothing by it.
    """
    trace = trace_of(_BESIDE, 8, 1, "")
    issued = np.zeros(trace.steps)
    run(trace, 1, MACHINE, LATENCY, issued=issued)
    names = np.array([i.mnemonic.split("_")[1] for i in trace.instructions])
    for number, (codes, when) in enumerate(of_waves(trace, issued)):
        kind, least, most = ("mfma", 16, 16) if number < 4 else ("read", 20, 32)
        each = np.diff(when[names[codes] == kind])[20:80]
        assert least <= each.mean() <= most


# -- which loop

_NEST = """
  s_mov_b32 s8, {outer}
outer:
  s_mov_b32 s9, {inner}
inner:
  v_mfma_f32_32x32x16_f16 a[0:15], v[100:103], v[104:107], a[0:15]
  s_nop 15
  s_nop 15
  s_sub_u32 s9, s9, 1
  s_cmp_lg_u32 s9, 0
  s_cbranch_scc1 inner
.rept {behind}
  v_mov_b32_e32 v8, 0
.endr
  s_sub_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 outer
"""


def nest(outer: int, inner: int, behind: int, waves: int = 4) -> Trace:
    """A loop with a matrix instruction in another one, which has some vector instructions of its own."""
    return trace_of(_NEST.format(outer=outer, inner=inner, behind=behind), waves, 1, "")


def test_the_inner_loop_where_most_time_is_spent_in_it() -> None:
    """64 + 64 cycles for two s_nop, 4 for each of what else there is, 8 for a branch."""
    loop = replayed(nest(4, 9, 3))
    assert (loop.iterations, loop.matrix) == (36, 32)
    assert loop.cycles == pytest.approx(4 + 64 + 64 + 4 + 4 + 8, abs=4)
    assert loop.share == pytest.approx(32 / loop.cycles)


def test_the_outer_loop_where_most_time_is_spent_outside_the_inner_one() -> None:
    trace = nest(6, 3, 600)
    loop = replayed(trace)
    assert (loop.iterations, loop.matrix) == (6, 3 * 32)
    assert [trace.instructions[k].mnemonic for k in (loop.first, loop.last)] == ["s_mov_b32", "s_cbranch_scc1"]


def test_waves_on_one_simd_add_up() -> None:
    """Two workgroups, or one with twice the waves: twice the matrix instructions in an iteration."""
    loops = [replayed(nest(1, 30, 1)), replayed(nest(1, 30, 1), resident=2), replayed(nest(1, 30, 1, waves=8))]
    assert [loop.matrix for loop in loops] == [32, 64, 64]


def test_no_loop() -> None:
    trace = nest(1, 1, 50)
    issued = np.zeros(trace.steps)
    run(trace, 1, MACHINE, LATENCY, issued=issued)
    assert hottest(trace, of_waves(trace, issued)) is None
