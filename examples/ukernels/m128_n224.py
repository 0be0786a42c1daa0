"""MXFP4 in tiles of 128×224: of a result of 2048×3584, each of 256 compute units has one.

mxcomp-compile model.mlir -o model.vmfb --ukernel-dir=examples/ukernels

Four waves, two by two, each with 4×7 fragments of the result. LDS holds the four steps of a K tile. While a wave
multiplies a step it reads the next one into registers; what it multiplies is no longer in LDS, so its place gets the
step of the next K tile.
"""

from dataclasses import replace

from iree.compiler import ir
from iree.compiler.dialects import util

from mxcomp.layout import LHS, RHS, layout_entries
from mxcomp.layout.inner_tiles import MFMA, inner_tiled_layout
from mxcomp.mlir import build
from mxcomp.ukernels import Kernel, builder
from mxcomp.ukernels.builder import Index, Values
from mxcomp.ukernels.operands import Operand, Staging, argument_types

ELEMENTS = ("f4E2M1FN", "f4E2M1FN")
LAYOUT = replace(inner_tiled_layout(8, 14), lane_columns=True)  # 8×16 rows by 14×16 columns by 512 along K
STEPS = LAYOUT.intrinsics_k
WAVES_M, WAVES_N, LANES = 2, 2, 64
ROWS, COLUMNS = 8 // WAVES_M, 14 // WAVES_N

RULE = {
    "archs": ["gfx950"],
    "types": [*ELEMENTS, "f8E8M0FNU", "f8E8M0FNU", "f32"],
    "layout": layout_entries(LAYOUT),
    "constraints": {"m": {"min": 2048, "max": 2048}, "n": {"min": 3584, "max": 3584}, "k": {"min": 1024, "div": 32}},
    "benefit": 100,
    "workgroup_size": [WAVES_M * WAVES_N * LANES, 1, 1],
    "llvm_func_attrs": {"amdgpu-waves-per-eu": "1"},
}


def write(name: str) -> ir.Operation:
    *operands, result = argument_types(LAYOUT, ELEMENTS)
    function = builder.function(name, [*operands, result], result)
    with ir.InsertionPoint(function.operation.regions[0].blocks[0]):
        lhs, rhs, lhs_scale, rhs_scale, _ = function.operation.regions[0].blocks[0].arguments
        k_tiles = Index.of(build.dim(lhs, 2))
        a = Operand(lhs, lhs_scale, ELEMENTS[LHS], ROWS, staging(8, LHS), k_tiles)
        b = Operand(rhs, rhs_scale, ELEMENTS[RHS], COLUMNS, staging(14, RHS), k_tiles)
        for x in (a, b):
            x.stage()
            x.stage_scales()
        with builder.threads(WAVES_M * WAVES_N * LANES, result) as threads:
            wave, lane = builder.uniform(threads.number // LANES), threads.number % LANES
            row, column = wave // WAVES_N * ROWS, wave % WAVES_N * COLUMNS
            a.distribute(wave, lane, row)
            b.distribute(wave, lane, column)
            acc = multiply(a, b, k_tiles)
            threads.store(acc, [1, 1, ROWS, COLUMNS, 1, 1, 4], [0, 0, row, column, lane // 16, lane % 16, 0])
        util.ReturnOp(threads.results)
    return function.operation


def staging(inner_tiles: int, side: int) -> Staging:
    """What LDS holds: the steps of a K tile, and the scales of two."""
    block_bytes = MFMA.lane_bytes(ELEMENTS[side])
    return Staging(inner_tiles, STEPS, block_bytes, WAVES_M * WAVES_N, stages=STEPS, scale_slots=2)


def multiply(a: Operand, b: Operand, k_tiles: Index) -> Values:
    sides = (a, b)

    def copy(tile: Index, step: int) -> None:
        for x in sides:
            x.copy(x.in_bounds(tile), step, Index.of(step * x.staging.stage_bytes))

    def copy_scales(tile: Index) -> None:
        for x in sides:
            x.copy_scales(x.in_bounds(tile), tile % 2)

    def read(step: int) -> list[Values]:
        return [[x.fragment(n, Index.of(step * x.staging.stage_bytes)) for n in range(x.fragments)] for x in sides]

    def read_scales(tile: Index) -> list[Values]:
        return [[x.scales(n, tile % 2) for n in range(x.fragments)] for x in sides]

    def k_tile(i: Index, acc: Values, *ahead: Values) -> list[Values]:
        fragments, scales = list(ahead[:2]), list(ahead[2:])
        for step in range(STEPS):
            builder.wait_groups(STEPS - 2)  # for the next step
            builder.lds_barrier()
            copy(i + 1, step)
            if step == 0:
                copy_scales(i + 2)
            builder.async_group()
            ahead = read((step + 1) % STEPS)
            following = read_scales(i + 1) if step == STEPS - 1 else scales
            acc = add_product(step, fragments, scales, acc)
            builder.sched_groups("mfma_wmma", "ds_read", "all_vmem", times=ROWS + COLUMNS)
            builder.sched_barrier()
            fragments, scales = ahead, following
        return [acc, *fragments, *scales]

    def add_product(step: int, fragments: list[Values], scales: list[Values], acc: Values) -> Values:
        left, right = (
            [x.factor(each, scale, step) for each, scale in zip(*of, strict=True)]
            for x, of in zip(sides, zip(fragments, scales, strict=True), strict=True)
        )
        pairs = [(m, n) for m in left for n in right]
        # `lane_columns`: with factors in each other's place a lane's accumulators are neighbours in a row.
        return [builder.scaled_mfma(LAYOUT.shape, n, m, sums) for (m, n), sums in zip(pairs, acc, strict=True)]

    for tile in range(2):
        copy_scales(Index.of(tile))
    for step in range(STEPS):
        copy(Index.of(0), step)
        builder.async_group()
    acc = [builder.zeros(4) for _ in range(ROWS * COLUMNS)]
    builder.wait_groups(STEPS - 1)
    builder.lds_barrier()
    acc, *_ = builder.loop(k_tiles, k_tile, acc, *read(0), *read_scales(Index.of(0)))
    builder.wait_groups(0)  # nothing may arrive in LDS that another workgroup has taken over
    return acc


INSTANCES = (Kernel("own_f4_f4_f32_m128_n224_k512", RULE, write),)
