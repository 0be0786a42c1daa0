"""Triton kernels of the corpus: small, plain, one idea each. Sizes are in elements, matrices are row-major.

The right operand of a product is stored as [N, K] like the left one, unless the kernel's name ends in `_kn`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scaled_matmul(
    a,
    b,
    a_scale,
    b_scale,
    c,
    m,
    n,
    k,
    a_format: tl.constexpr,
    b_format: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
):
    """c = a · bᵀ of MX operands: one E8M0 scale for 32 elements along K. Rows past M and N are masked."""
    a_packed: tl.constexpr = 2 if a_format == "e2m1" else 1
    b_packed: tl.constexpr = 2 if b_format == "e2m1" else 1
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    a_bytes = tl.arange(0, block_k // a_packed)
    b_bytes = tl.arange(0, block_k // b_packed)
    blocks = tl.arange(0, block_k // 32)
    a_at = a + rows[:, None] * (k // a_packed) + a_bytes[None, :]
    b_at = b + columns[None, :] * (k // b_packed) + b_bytes[:, None]
    a_scale_at = a_scale + rows[:, None] * (k // 32) + blocks[None, :]
    b_scale_at = b_scale + columns[:, None] * (k // 32) + blocks[None, :]
    sums = tl.zeros((block_m, block_n), tl.float32)
    for _ in range(0, k, block_k):
        x = tl.load(a_at, rows[:, None] < m, 0)
        y = tl.load(b_at, columns[None, :] < n, 0)
        x_scale = tl.load(a_scale_at, rows[:, None] < m, 127)
        y_scale = tl.load(b_scale_at, columns[:, None] < n, 127)
        sums = tl.dot_scaled(x, x_scale, a_format, y, y_scale, b_format, sums)
        a_at += block_k // a_packed
        b_at += block_k // b_packed
        a_scale_at += block_k // 32
        b_scale_at += block_k // 32
    tl.store(c + rows[:, None] * n + columns[None, :], sums, (rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def scaled_matmul_kn(
    a,
    b,
    a_scale,
    b_scale,
    c,
    m,
    n,
    k,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
):
    """c = a · b of MXFP4 operands, b with two neighbours along N in a byte: LDS has to transpose 4-bit elements."""
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    column_bytes = tl.program_id(1) * (block_n // 2) + tl.arange(0, block_n // 2)
    blocks = tl.arange(0, block_k // 32)
    sums = tl.zeros((block_m, block_n), tl.float32)
    for start in range(0, k, block_k):
        a_bytes = start // 2 + tl.arange(0, block_k // 2)
        x = tl.load(a + rows[:, None] * (k // 2) + a_bytes[None, :])
        y = tl.load(b + (start + tl.arange(0, block_k))[:, None] * (n // 2) + column_bytes[None, :])
        x_scale = tl.load(a_scale + rows[:, None] * (k // 32) + (start // 32 + blocks)[None, :])
        y_scale = tl.load(b_scale + columns[:, None] * (k // 32) + (start // 32 + blocks)[None, :])
        sums = tl.dot_scaled(x, x_scale, "e2m1", y, y_scale, "e2m1", sums, rhs_k_pack=False)
    tl.store(c + rows[:, None] * n + columns[None, :], sums)


@triton.jit
def weight_matmul(
    a,
    b,
    b_scale,
    c,
    m,
    n,
    k,
    a_format: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
):
    """c = a · bᵀ of 16-bit floats and MXFP4 weights, which are converted on their way into the product."""
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    sums = tl.zeros((block_m, block_n), tl.float32)
    for start in range(0, k, block_k):
        x = tl.load(a + rows[:, None] * k + (start + tl.arange(0, block_k))[None, :])
        y = tl.load(b + columns[None, :] * (k // 2) + (start // 2 + tl.arange(0, block_k // 2))[:, None])
        scale = tl.load(b_scale + columns[:, None] * (k // 32) + (start // 32 + tl.arange(0, block_k // 32))[None, :])
        sums = tl.dot_scaled(x, None, a_format, y, scale, "e2m1", sums)
    tl.store(c + rows[:, None] * n + columns[None, :], sums)


@triton.jit
def matmul(a, b, c, m, n, k, block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr):
    """c = a · bᵀ with f32 sums. Rows past M and N and columns past K are masked."""
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    sums = tl.zeros((block_m, block_n), tl.float32)
    for start in range(0, k, block_k):
        depth = start + tl.arange(0, block_k)
        x = tl.load(a + rows[:, None] * k + depth[None, :], (rows[:, None] < m) & (depth[None, :] < k), 0.0)
        y = tl.load(b + columns[None, :] * k + depth[:, None], (columns[None, :] < n) & (depth[:, None] < k), 0.0)
        sums = tl.dot(x, y, sums)
    tl.store(c + rows[:, None] * n + columns[None, :], sums, (rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def matmul_kn(a, b, c, m, n, k, block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr):
    """c = a · b with f32 sums: LDS has to transpose b."""
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    sums = tl.zeros((block_m, block_n), tl.float32)
    for start in range(0, k, block_k):
        depth = start + tl.arange(0, block_k)
        x = tl.load(a + rows[:, None] * k + depth[None, :])
        y = tl.load(b + depth[:, None] * n + columns[None, :])
        sums = tl.dot(x, y, sums)
    tl.store(c + rows[:, None] * n + columns[None, :], sums)


@triton.jit
def split_matmul(a, b, c, m, n, k, block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr):
    """c += a · bᵀ, with K split over workgroups that add to c by atomics in its own type."""
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    depth = tl.program_id(2) * block_k + tl.arange(0, block_k)
    x = tl.load(a + rows[:, None] * k + depth[None, :])
    y = tl.load(b + columns[None, :] * k + depth[:, None])
    part = tl.dot(x, y).to(c.dtype.element_ty)
    tl.atomic_add(c + rows[:, None] * n + columns[None, :], part, sem="relaxed")


@triton.jit
def softmax(x, y, columns, block: tl.constexpr):
    """A row of y is the softmax of that of x."""
    row = tl.program_id(0) * columns
    at = tl.arange(0, block)
    values = tl.load(x + row + at, at < columns, -float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row + at, powers / tl.sum(powers, 0), at < columns)


@triton.jit
def layer_norm(x, weight, bias, y, columns, epsilon, block: tl.constexpr):
    """y = (x − mean) / √(variance + ε) · weight + bias by row, in passes over blocks of columns."""
    row = tl.program_id(0) * columns
    total = tl.zeros((block,), tl.float32)
    for start in range(0, columns, block):
        at = start + tl.arange(0, block)
        total += tl.load(x + row + at, at < columns, 0.0).to(tl.float32)
    mean = tl.sum(total, 0) / columns
    squares = tl.zeros((block,), tl.float32)
    for start in range(0, columns, block):
        at = start + tl.arange(0, block)
        distance = tl.load(x + row + at, at < columns, 0.0).to(tl.float32) - mean
        squares += tl.where(at < columns, distance * distance, 0.0)
    factor = tl.rsqrt(tl.sum(squares, 0) / columns + epsilon)
    for start in range(0, columns, block):
        at = start + tl.arange(0, block)
        values = tl.load(x + row + at, at < columns, 0.0).to(tl.float32)
        w, b = tl.load(weight + at, at < columns, 0.0), tl.load(bias + at, at < columns, 0.0)
        tl.store(y + row + at, ((values - mean) * factor * w + b).to(y.dtype.element_ty), at < columns)


@triton.jit
def _block_scale(largest):
    """E8M0 code of 2^(⌊log₂ amax⌋ − 2), the rule of the OCP specification, from the bits of amax."""
    return tl.maximum((largest >> 23).to(tl.int32) - 2, 0)


@triton.jit
def quantize_mxfp4(x, codes, scales, columns, block_m: tl.constexpr, block_k: tl.constexpr):
    """bf16 to MXFP4 by integer and f32 operations: to nearest even, saturating. Two codes per byte, even K low."""
    row = tl.program_id(0) * block_m + tl.arange(0, block_m)
    column = tl.program_id(1) * block_k + tl.arange(0, block_k)
    values = tl.load(x + row[:, None] * columns + column[None, :]).to(tl.float32)
    blocks = tl.reshape(values, (block_m, block_k // 32, 32))
    bits = blocks.to(tl.uint32, bitcast=True)
    scale = _block_scale(tl.max(bits & 0x7FFFFFFF, 2))
    # x · 2^(127 − scale) in two steps, for one factor alone can leave the range of f32.
    half = (254 - scale) >> 1
    first = (half << 23).to(tl.float32, bitcast=True)
    second = ((381 - scale - half) << 23).to(tl.float32, bitcast=True)
    quotient = tl.abs(blocks) * first[:, :, None] * second[:, :, None]
    code = (quotient > 0.25).to(tl.uint32)
    code += quotient >= 0.75
    code += quotient > 1.25
    code += quotient >= 1.75
    code += quotient > 2.5
    code += quotient >= 3.5
    code += quotient > 5.0
    code |= bits >> 31 << 3
    low, high = tl.split(tl.reshape(code, (block_m, block_k // 2, 2)))
    pair = tl.program_id(1) * (block_k // 2) + tl.arange(0, block_k // 2)
    tl.store(codes + row[:, None] * (columns // 2) + pair[None, :], (low | high << 4).to(tl.uint8))
    block = tl.program_id(1) * (block_k // 32) + tl.arange(0, block_k // 32)
    tl.store(scales + row[:, None] * (columns // 32) + block[None, :], scale.to(tl.uint8))


@triton.jit
def convert_mxfp4(x, codes, scales, columns, block_m: tl.constexpr, block_k: tl.constexpr):
    """As `quantize_mxfp4`, by the conversion instruction of gfx950. x holds pairs of bf16."""
    row = tl.program_id(0) * block_m + tl.arange(0, block_m)
    pair = tl.program_id(1) * (block_k // 2) + tl.arange(0, block_k // 2)
    values = tl.load(x + row[:, None] * (columns // 2) + pair[None, :])
    blocks = tl.reshape(values, (block_m, block_k // 32, 16))
    largest = tl.max(tl.maximum((blocks & 0x7FFF) << 16, blocks & 0x7FFF0000), 2)
    scale = _block_scale(largest)
    # 2^(scale − 127) as f32, where code 0 stands for a subnormal number.
    factor = tl.where(scale == 0, 0x400000, scale << 23)[:, :, None]
    code = tl.inline_asm_elementwise(
        "v_mov_b32 $0, 0\n v_cvt_scalef32_pk_fp4_bf16 $0, $1, $2",
        "=&v,v,v",
        [blocks, tl.broadcast_to(factor, blocks.shape)],
        dtype=tl.uint32,
        is_pure=True,
        pack=1,
    )
    code = tl.reshape(code, (block_m, block_k // 2))
    tl.store(codes + row[:, None] * (columns // 2) + pair[None, :], code.to(tl.uint8))
    block = tl.program_id(1) * (block_k // 32) + tl.arange(0, block_k // 32)
    tl.store(scales + row[:, None] * (columns // 32) + block[None, :], scale.to(tl.uint8))
