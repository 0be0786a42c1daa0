"""Gluon kernels whose loops are of the kinds that AMD measured on gfx950, with eight waves, two on each SIMD.

The waves of a SIMD are a stage apart (`warp_pipeline_stage`): while one multiplies, the other reads LDS and has the
next tiles loaded directly into it. The order of stages is that of ROCm/gfx950-gluon-tutorials (docs/warp_pipelining.md
and what the titles of its kernels say); all else is ours.
"""

from __future__ import annotations

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd import AMDMFMALayout, warp_pipeline_stage
from triton.experimental.gluon.language.amd.cdna4 import async_copy, get_mfma_scale_layout, mfma, mfma_scaled

HALF = gl.constexpr(128)
"""Rows of a half tile; each has 128 bytes along K, whatever the format. A tile is 256 × 256."""
BLOCKS = gl.constexpr(8)
"""Blocks along K of a half tile in MXFP4, each with a scale."""


@triton.constexpr_function
def _rows(width):
    """Bits of a row of a half tile: those near, which a matrix instruction of that width reads together, and others."""
    return ([1, 2, 4, 8], [16, 32, 64]) if width == 16 else ([2, 4, 8, 16], [1, 32, 64])


@triton.constexpr_function
def loaded(width, vector):
    """Who loads what of a half tile directly into LDS: a lane 16 bytes, `vector` elements; a wave rows that are far."""
    near, far = _rows(width)
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 1 << bit] for bit in range(vector.bit_length() - 1)] + [[near[3], 0]],
        lane_bases=[[0, vector << bit] for bit in range(3)] + [[row, 0] for row in far],
        warp_bases=[[row, 0] for row in near[:3]],
        block_bases=[],
        shape=[128, 8 * vector],
    )


@triton.constexpr_function
def stored(width, vector):
    """How a half tile lies in LDS: 1024 bytes as a wave loads them, then some that keep near rows on other banks."""
    near, far = _rows(width)
    along = [[0, 1 << bit] for bit in range((8 * vector).bit_length() - 1)]
    pad = 2 * vector if width == 16 else vector
    return gl.PaddedSharedLayout(
        [[64 * vector, pad]], along + [[row, 0] for row in (*far, *near)], [], [128, 8 * vector]
    )


@gluon.jit
def _multiply(a, a_scale, b, b_scale, sums, format: gl.constexpr, scaled: gl.constexpr):
    if format is None:
        return mfma(a, b, sums)
    elif scaled:
        return mfma_scaled(a, a_scale, format, b, b_scale, format, sums)
    else:
        return mfma_scaled(a, None, format, b, None, format, sums)


@gluon.jit
def _load(shared, at, half, step, offsets, scales, scales_at, scale_offsets, few: gl.constexpr):
    """A half tile into LDS, with its scales if it has any: one group of copies. Few registers: scalars move instead."""
    if few:
        async_copy.buffer_load_to_shared(shared, at + half + step, offsets)
    else:
        async_copy.buffer_load_to_shared(shared, at, offsets + (half + step))
    if scales is not None:
        async_copy.buffer_load_to_shared(scales, scales_at, scale_offsets)
    async_copy.commit_group()


@gluon.jit
def _read(scales, buffer: gl.constexpr, layout: gl.constexpr):
    if scales is None:
        return 0
    else:
        return scales.index(buffer).load(layout)


@gluon.jit
def _read_both(scales, buffer: gl.constexpr, layout: gl.constexpr, half: gl.constexpr):
    """Scales of two halves by one read: 8 bytes a lane, which LDS transposes; of one half they are 4, byte by byte."""
    left, right = gl.split(gl.permute(scales.index(buffer).load(layout).reshape([2, HALF, BLOCKS]), [1, 2, 0]))
    return gl.convert_layout(left, half), gl.convert_layout(right, half)


@gluon.jit
def _scale_offsets(size, rows: gl.constexpr, layout: gl.constexpr):
    row = gl.arange(0, rows, gl.SliceLayout(1, layout))
    block = gl.arange(0, BLOCKS, gl.SliceLayout(0, layout))
    return row[:, None] + block[None, :] * size


@gluon.jit
def _part(shared, buffer: gl.constexpr):
    return None if shared is None else shared.index(buffer)


@gluon.jit
def product(
    a,
    b,
    a_scale,
    b_scale,
    c,
    n,
    k,
    scale_pitch,
    shape: gl.constexpr,
    k_width: gl.constexpr,
    vector: gl.constexpr,
    format: gl.constexpr,
    scales: gl.constexpr,
):
    """c = a · bᵀ with f32 sums. Scales are stored by block along K.

    Args:
        k: Elements of a row as they are stored, in bytes where there are two in a byte; at least four steps.
        shape, k_width: Of matrix instructions, and elements along K that a lane reads from LDS at once.
        vector: Elements in 16 bytes.
        format: Of elements that are stored as bytes.
        scales: "none"; "halves": each half tile is loaded and read with its own; "combined": those of b's two halves
            are loaded and read at once.
    """
    scaled: gl.constexpr = scales != "none"
    combined: gl.constexpr = scales == "combined"
    depth: gl.constexpr = 8 * vector
    layout: gl.constexpr = AMDMFMALayout(version=4, instr_shape=shape, transposed=True, warps_per_cta=[2, 4])
    a_layout: gl.constexpr = gl.DotOperandLayout(0, layout, k_width)
    b_layout: gl.constexpr = gl.DotOperandLayout(1, layout, k_width)
    copies: gl.constexpr = loaded(shape[0], vector)
    in_lds: gl.constexpr = stored(shape[0], vector)

    rows = gl.arange(0, HALF, gl.SliceLayout(1, copies))
    columns = gl.arange(0, depth, gl.SliceLayout(0, copies))
    offsets = rows[:, None] * k + columns[None, :]
    half = HALF * k
    a += 2 * half * gl.program_id(0)
    b += 2 * half * gl.program_id(1)
    tile: gl.constexpr = [2, HALF, depth]
    top = gl.allocate_shared_memory(a.dtype.element_ty, tile, in_lds)
    bottom = gl.allocate_shared_memory(a.dtype.element_ty, tile, in_lds)
    left = gl.allocate_shared_memory(b.dtype.element_ty, tile, in_lds)
    right = gl.allocate_shared_memory(b.dtype.element_ty, tile, in_lds)

    a_scales_layout: gl.constexpr = get_mfma_scale_layout(a_layout, [HALF, BLOCKS])
    b_scales_layout: gl.constexpr = get_mfma_scale_layout(b_layout, [HALF, BLOCKS])
    both_layout: gl.constexpr = get_mfma_scale_layout(b_layout, [2 * HALF, BLOCKS])
    top_scales, bottom_scales, left_scales, right_scales = None, None, None, None
    a_scale_offsets, b_scale_offsets = None, None
    scale_step = BLOCKS * scale_pitch
    if scaled:
        flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
        dwords: gl.constexpr = gl.BlockedLayout([4, 1], [32, 2], [2, 4], [0, 1])
        columns_of_dwords: gl.constexpr = gl.BlockedLayout([4, 1], [64, 1], [1, 8], [0, 1])
        b_rows: gl.constexpr = 2 * HALF if combined else HALF
        top_scales = gl.allocate_shared_memory(gl.uint8, [2, HALF, BLOCKS], flat)
        bottom_scales = gl.allocate_shared_memory(gl.uint8, [2, HALF, BLOCKS], flat)
        left_scales = gl.allocate_shared_memory(gl.uint8, [2, b_rows, BLOCKS], flat)
        a_scale_offsets = _scale_offsets(scale_pitch, HALF, dwords)
        b_scale_offsets = _scale_offsets(scale_pitch, b_rows, columns_of_dwords if combined else dwords)
        a_scale += 2 * HALF * gl.program_id(0)
        b_scale += 2 * HALF * gl.program_id(1)
        if not combined:
            right_scales = gl.allocate_shared_memory(gl.uint8, [2, HALF, BLOCKS], flat)

    for i in gl.static_range(2):
        _load(
            left.index(i), b, 0, i * depth, offsets, _part(left_scales, i), b_scale + i * scale_step, b_scale_offsets,
            scaled,
        )  # fmt: skip
        _load(
            top.index(i), a, 0, i * depth, offsets, _part(top_scales, i), a_scale + i * scale_step, a_scale_offsets,
            scaled,
        )  # fmt: skip
        _load(
            bottom.index(i), a, half, i * depth, offsets, _part(bottom_scales, i), a_scale + HALF + i * scale_step,
            a_scale_offsets, scaled,
        )  # fmt: skip
        _load(
            right.index(i), b, half, i * depth, offsets, _part(right_scales, i), b_scale + HALF + i * scale_step,
            b_scale_offsets, scaled,
        )  # fmt: skip
    a += 2 * depth
    b += 2 * depth
    a_scale += 2 * scale_step
    b_scale += 2 * scale_step

    async_copy.wait_group(6)
    b0 = left.index(0).permute([1, 0]).load(b_layout)
    a0 = top.index(0).load(a_layout)
    a0_scale = _read(top_scales, 0, a_scales_layout)
    if combined:
        b0_scale, b1_scale = _read_both(left_scales, 0, both_layout, b_scales_layout)
    else:
        b0_scale = _read(left_scales, 0, b_scales_layout)
        b1_scale = b0_scale
    zeros = gl.zeros([HALF, HALF], gl.float32, layout)
    top_left, bottom_left, top_right, bottom_right = zeros, zeros, zeros, zeros

    gl.assume(k > 3 * depth)
    for _ in range(0, k - 2 * depth, 2 * depth):
        for i in gl.static_range(2):
            async_copy.wait_group(5)
            with warp_pipeline_stage("multiply", priority=0):
                top_left = _multiply(a0, a0_scale, b0, b0_scale, top_left, format, scaled)
            with warp_pipeline_stage("move", priority=1):
                a1 = bottom.index(i).load(a_layout)
                a1_scale = _read(bottom_scales, i, a_scales_layout)
                _load(
                    left.index(i), b, 0, i * depth, offsets, _part(left_scales, i), b_scale + i * scale_step,
                    b_scale_offsets, scaled,
                )  # fmt: skip

            async_copy.wait_group(5)
            with warp_pipeline_stage("multiply", priority=0):
                bottom_left = _multiply(a1, a1_scale, b0, b0_scale, bottom_left, format, scaled)
            with warp_pipeline_stage("move", priority=1):
                b1 = right.index(i).permute([1, 0]).load(b_layout)
                if not combined:
                    b1_scale = _read(right_scales, i, b_scales_layout)
                _load(
                    top.index(i), a, 0, i * depth, offsets, _part(top_scales, i), a_scale + i * scale_step,
                    a_scale_offsets, scaled,
                )  # fmt: skip

            async_copy.wait_group(5)
            with warp_pipeline_stage("multiply", priority=0):
                top_right = _multiply(a0, a0_scale, b1, b1_scale, top_right, format, scaled)
            with warp_pipeline_stage("move", priority=1):
                b0 = left.index(1 - i).permute([1, 0]).load(b_layout)
                if not combined:
                    b0_scale = _read(left_scales, 1 - i, b_scales_layout)
                _load(
                    bottom.index(i), a, half, i * depth, offsets, _part(bottom_scales, i),
                    a_scale + HALF + i * scale_step, a_scale_offsets, scaled,
                )  # fmt: skip

            async_copy.wait_group(5)
            with warp_pipeline_stage("multiply", priority=0):
                bottom_right = _multiply(a1, a1_scale, b1, b1_scale, bottom_right, format, scaled)
            with warp_pipeline_stage("move", priority=1):
                a0 = top.index(1 - i).load(a_layout)
                a0_scale = _read(top_scales, 1 - i, a_scales_layout)
                if combined:
                    b0_scale, b1_scale = _read_both(left_scales, 1 - i, both_layout, b_scales_layout)
                _load(
                    right.index(i), b, half, i * depth, offsets, _part(right_scales, i),
                    b_scale + HALF + i * scale_step, b_scale_offsets, scaled,
                )  # fmt: skip
                if i == 1:
                    a += 2 * depth
                    b += 2 * depth
                    a_scale += 2 * scale_step
                    b_scale += 2 * scale_step

    for i in gl.static_range(2):
        async_copy.wait_group(5 - 4 * i)
        top_left = _multiply(a0, a0_scale, b0, b0_scale, top_left, format, scaled)
        a1 = bottom.index(i).load(a_layout)
        a1_scale = _read(bottom_scales, i, a_scales_layout)
        async_copy.wait_group(4 - 4 * i)
        bottom_left = _multiply(a1, a1_scale, b0, b0_scale, bottom_left, format, scaled)
        b1 = right.index(i).permute([1, 0]).load(b_layout)
        if not combined:
            b1_scale = _read(right_scales, i, b_scales_layout)
        top_right = _multiply(a0, a0_scale, b1, b1_scale, top_right, format, scaled)
        bottom_right = _multiply(a1, a1_scale, b1, b1_scale, bottom_right, format, scaled)
        if i == 0:
            async_copy.wait_group(2)
            b0 = left.index(1).permute([1, 0]).load(b_layout)
            a0 = top.index(1).load(a_layout)
            a0_scale = _read(top_scales, 1, a_scales_layout)
            if combined:
                b0_scale, b1_scale = _read_both(left_scales, 1, both_layout, b_scales_layout)
            else:
                b0_scale = _read(left_scales, 1, b_scales_layout)

    row = gl.arange(0, HALF, gl.SliceLayout(1, layout))
    column = gl.arange(0, HALF, gl.SliceLayout(0, layout))
    to = row[:, None] * n + column[None, :]
    c += 2 * HALF * (gl.program_id(0) * n + gl.program_id(1))
    gl.amd.cdna4.buffer_store(top_left, c, to)
    gl.amd.cdna4.buffer_store(bottom_left, c + HALF * n, to)
    gl.amd.cdna4.buffer_store(top_right, c + HALF, to)
    gl.amd.cdna4.buffer_store(bottom_right, c + HALF * n + HALF, to)


KEYS = gl.constexpr(64)
"""Keys and values of a tile of attention; a head has 128 elements."""


@gluon.jit
def _weights(scores, largest):
    """Unnormalised weights, and the factor for what was summed so far: a softmax that goes on (in powers of 2)."""
    now = gl.maximum(largest, gl.max(scores, 1))
    return now, gl.exp2(scores - now[:, None]), gl.exp2(largest - now)


@gluon.jit
def _sum_up(values, total, weights, factor, layout: gl.constexpr):
    """Sums so far times the factor, with the weights' sum; weights as an operand."""
    total = total * factor + gl.sum(weights, 1)
    return values * factor[:, None], total, gl.convert_layout(weights.to(gl.bfloat16), layout)


@gluon.jit
def _score(q, k):
    zeros = gl.zeros([256, KEYS], gl.float32, q.type.layout.parent)
    return mfma(q, k, zeros)


@gluon.jit
def attention(q, k, v, o, keys, scale):
    """o = softmax(scale · q · kᵀ) · v for heads of [queries or keys, 128] in bf16, with an odd number of tiles of keys.

    `scale` has log₂ e in it. There are at least 5 tiles. Each wave has 32 queries. Scores are a tile ahead of values,
    and what becomes of them is worked out beside the products of keys and of values.
    """
    layout: gl.constexpr = AMDMFMALayout(version=4, instr_shape=[32, 32, 16], transposed=True, warps_per_cta=[8, 1])
    q_layout: gl.constexpr = gl.DotOperandLayout(0, layout, 8)
    k_layout: gl.constexpr = gl.DotOperandLayout(1, layout, 8)
    p_layout: gl.constexpr = gl.DotOperandLayout(0, layout, 4)
    v_layout: gl.constexpr = gl.DotOperandLayout(1, layout, 4)
    copies: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [0, 2], [0, 4], [8, 0]],
        lane_bases=[[0, 8], [0, 16], [0, 32], [0, 64], [16, 0], [32, 0]],
        warp_bases=[[1, 0], [2, 0], [4, 0]],
        block_bases=[],
        shape=[64, 128],
    )
    along: gl.constexpr = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32], [0, 64]]
    down: gl.constexpr = [[16, 0], [32, 0], [1, 0], [2, 0], [4, 0], [8, 0]]
    k_shared = gl.allocate_shared_memory(
        gl.bfloat16, [2, KEYS, 128], gl.PaddedSharedLayout([[512, 8]], along + down, [], [64, 128])
    )
    v_shared = gl.allocate_shared_memory(
        gl.bfloat16, [2, KEYS, 128], gl.PaddedSharedLayout([[512, 32]], along + down, [], [64, 128])
    )

    rows = gl.arange(0, 256, gl.SliceLayout(1, q_layout))
    columns = gl.arange(0, 128, gl.SliceLayout(0, q_layout))
    q += (gl.program_id(1) * gl.num_programs(0) + gl.program_id(0)) * 256 * 128
    queries = gl.amd.cdna4.buffer_load(q, rows[:, None] * 128 + columns[None, :])
    queries = (queries.to(gl.float32) * scale).to(gl.bfloat16)

    row = gl.arange(0, KEYS, gl.SliceLayout(1, copies))
    column = gl.arange(0, 128, gl.SliceLayout(0, copies))
    offsets = row[:, None] * 128 + column[None, :]
    k += gl.program_id(1) * keys * 128
    v += gl.program_id(1) * keys * 128
    tile: gl.constexpr = KEYS * 128

    async_copy.buffer_load_to_shared(k_shared.index(0), k, offsets)
    async_copy.commit_group()
    async_copy.buffer_load_to_shared(v_shared.index(0), v, offsets)
    async_copy.commit_group()
    async_copy.buffer_load_to_shared(k_shared.index(1), k + tile, offsets)
    async_copy.commit_group()
    values = gl.zeros([256, 128], gl.float32, layout)
    total = gl.zeros([256], gl.float32, gl.SliceLayout(1, layout))
    largest = gl.full([256], float("-inf"), gl.float32, gl.SliceLayout(1, layout))
    async_copy.wait_group(2)
    some = async_copy.load_shared_relaxed(k_shared.index(0).permute([1, 0]), k_layout)
    largest, weights, factor = _weights(_score(queries, some), largest)
    gl.barrier()
    async_copy.buffer_load_to_shared(k_shared.index(0), k + 2 * tile, offsets)
    async_copy.commit_group()
    async_copy.wait_group(1)
    some = async_copy.load_shared_relaxed(k_shared.index(1).permute([1, 0]), k_layout)
    async_copy.buffer_load_to_shared(v_shared.index(1), v + tile, offsets)
    async_copy.commit_group()
    k += 3 * tile
    v += 2 * tile

    for _ in range(0, keys - 3 * KEYS, 2 * KEYS):
        for i in gl.static_range(2):
            with warp_pipeline_stage("score"):
                scores = _score(queries, some)
                values, total, p = _sum_up(values, total, weights, factor, p_layout)
            async_copy.wait_group(1)
            with warp_pipeline_stage("values"):
                v_tile = async_copy.load_shared_relaxed(v_shared.index(i), v_layout)
                async_copy.buffer_load_to_shared(k_shared.index(1 - i), k + i * tile, offsets)
                async_copy.commit_group()
            with warp_pipeline_stage("sum"):
                values = mfma(p, v_tile, values)
                largest, weights, factor = _weights(scores, largest)
            async_copy.wait_group(1)
            with warp_pipeline_stage("keys"):
                some = async_copy.load_shared_relaxed(k_shared.index(i).permute([1, 0]), k_layout)
                async_copy.buffer_load_to_shared(v_shared.index(i), v + i * tile, offsets)
                async_copy.commit_group()
                if i == 1:
                    k += 2 * tile
                    v += 2 * tile

    for i in gl.static_range(3):
        if i < 2:
            scores = _score(queries, some)
        values, total, p = _sum_up(values, total, weights, factor, p_layout)
        async_copy.wait_group(0)
        gl.barrier()
        values = mfma(p, v_shared.index(i % 2).load(v_layout), values)
        if i < 2:
            largest, weights, factor = _weights(scores, largest)
        if i == 0:
            some = k_shared.index(0).permute([1, 0]).load(k_layout)
            gl.barrier()
            async_copy.buffer_load_to_shared(v_shared.index(0), v, offsets)
            async_copy.commit_group()

    values = (values * (1.0 / total)[:, None]).to(gl.bfloat16)
    to = gl.arange(0, 256, gl.SliceLayout(1, layout))[:, None] * 128
    o += (gl.program_id(1) * gl.num_programs(0) + gl.program_id(0)) * 256 * 128
    gl.amd.cdna4.buffer_store(values, o, to + gl.arange(0, 128, gl.SliceLayout(0, layout))[None, :])
