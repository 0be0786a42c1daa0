"""Matrix instructions, element by element from the published layouts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from instructions import bits, run

TYPES = [
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float6_e2m3fn,
    ml_dtypes.float6_e3m2fn,
    ml_dtypes.float4_e2m1fn,
]
WIDTHS = [8, 8, 6, 6, 4]


def operand(words: np.ndarray, fmt: int, dim: int) -> np.ndarray:
    """Registers [n, 64] to float64[dim, K], one element at a time."""
    groups, width = 64 // dim, WIDTHS[fmt]
    result = np.zeros((dim, 32 * groups))
    for lane in range(64):
        group, row = lane // dim, lane % dim
        stream = int.from_bytes(words[:, lane].tobytes(), "little")
        for e in range(32):
            k = 32 * group + e
            if width == 8:  # two halves, K/2 apart
                k = e // 16 * (16 * groups) + 16 * group + e % 16
            code = np.array([stream >> width * e & (1 << width) - 1], np.uint8)
            result[row, k] = code.view(TYPES[fmt]).astype(np.float64)[0]
    return result


def scales(register: np.ndarray, byte: int, dim: int) -> np.ndarray:
    codes = (register >> 8 * byte & 0xFF).astype(int).reshape(64 // dim, dim).T
    return np.repeat(np.where(codes == 255, np.nan, 2.0 ** (codes - 127)), 32, axis=1)


def in_lanes(matrix: np.ndarray, dim: int) -> np.ndarray:
    result = np.zeros((dim * dim // 64, 64))
    for n in range(len(result)):
        for lane in range(64):
            row = 4 * (lane // 16) + n if dim == 16 else n // 4 * 8 + lane // 32 * 4 + n % 4
            result[n, lane] = matrix[row, lane % dim]
    return result


@pytest.mark.parametrize("dim", [16, 32])
@pytest.mark.parametrize(("fa", "fb"), [(4, 4), (0, 0), (1, 1), (0, 4), (4, 2), (2, 3), (3, 0), (1, 4)])
def test_scaled(dim: int, fa: int, fb: int) -> None:
    rng = np.random.default_rng(dim + fa)
    a, b = (np.stack([bits(20 * fmt + k + 1) for k in range(WIDTHS[fmt])]) for fmt in (fa, fb))
    for words, fmt in ((a, fa), (b, fb)):
        if fmt < 2:
            words &= np.uint32(0x77777777)  # no NaN, no infinity: they are tested apart
            words &= np.uint32(0xBFBFBFBF) if fmt == 1 else np.uint32(0xFFFFFFFF)
    sa, sb = rng.integers(120, 134, (2, 64, 4)).astype(np.uint8).view(np.uint32)[..., 0]
    sa[5] |= 0xFF000000
    count = dim * dim // 64
    c = rng.standard_normal((count, 64)).astype(np.float32)
    shape = f"{dim}x{dim}x{2048 // dim}"
    text = (
        f"v_mfma_scale_f32_{shape}_f8f6f4 v[64:{63 + count}], v[8:{7 + WIDTHS[fa]}], v[24:{23 + WIDTHS[fb]}], "
        f"v[64:{63 + count}], v2, v3 op_sel:[1,0,0] op_sel_hi:[1,1,0] cbsz:{fa} blgp:{fb}"
    )
    v = {8 + k: row for k, row in enumerate(a)} | {24 + k: row for k, row in enumerate(b)}
    v |= {64 + k: row for k, row in enumerate(c)} | {2: sa, 3: sb}
    got = run(text, v, active=1).v[64 : 64 + count].view(np.float32)  # EXEC does not matter
    left, right = operand(a, fa, dim) * scales(sa, 3, dim), operand(b, fb, dim) * scales(sb, 2, dim)
    wanted = in_lanes(left @ right.T, dim) + c
    size = in_lanes(np.abs(np.nan_to_num(left)) @ np.abs(np.nan_to_num(right)).T, dim) + np.abs(c)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    assert np.nanmax(np.abs(got - wanted) / size) < 2**-24
    assert np.isnan(got).any()  # of the scale 0xFF


DENSE = [("f16", np.float16, 32), ("bf16", ml_dtypes.bfloat16, 32), ("f32", np.float32, 4)]


@pytest.mark.parametrize(("kind", "dtype", "k"), DENSE)
def test_dense(kind: str, dtype: Any, k: int) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((16, k)).astype(dtype) for _ in range(2))
    per_lane = k // 4
    registers = max(1, per_lane * np.dtype(dtype).itemsize // 4)

    def lanes(matrix: np.ndarray) -> np.ndarray:
        grouped = matrix.reshape(16, 4, per_lane).transpose(1, 0, 2).reshape(64, per_lane)
        return np.ascontiguousarray(grouped).view(np.uint8).view(np.uint32).T.copy()

    name = lambda base: f"v[{base}:{base + registers - 1}]" if registers > 1 else f"v{base}"  # noqa: E731
    text = f"v_mfma_f32_16x16x{k}_{kind} v[64:67], {name(8)}, {name(24)}, 1.0"
    v = {8 + n: row for n, row in enumerate(lanes(a))} | {24 + n: row for n, row in enumerate(lanes(b))}
    got = run(text, v).v[64:68].view(np.float32)
    wanted = in_lanes(a.astype(np.float64) @ b.astype(np.float64).T, 16) + 1
    np.testing.assert_allclose(got, wanted, rtol=2**-23, atol=1e-7)


def test_int8() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, (16, 64), dtype=np.int8) for _ in range(2))
    lanes = lambda m: np.ascontiguousarray(m.reshape(16, 4, 16).transpose(1, 0, 2).reshape(64, 16)).view(np.uint32).T  # noqa: E731
    v = {8 + n: row.copy() for n, row in enumerate(lanes(a))} | {24 + n: row.copy() for n, row in enumerate(lanes(b))}
    got = run("v_mfma_i32_16x16x64_i8 v[64:67], v[8:11], v[24:27], -7", v).v[64:68].view(np.int32)
    np.testing.assert_array_equal(got, in_lanes(a.astype(int) @ b.astype(int).T, 16) - 7)


@pytest.mark.parametrize("types", ["fp8_fp8", "bf8_fp8", "fp8_bf8", "bf8_bf8"])
@pytest.mark.parametrize(("dim", "depth"), [(16, 128), (32, 64)])
def test_sparse(dim: int, depth: int, types: str) -> None:
    """Places of A's elements as AMD's tests on an MI350 have them: by column of the compressed row, not by lane."""
    rng = np.random.default_rng([dim, *types.encode()])
    kinds = [ml_dtypes.float8_e4m3fn if name == "fp8" else ml_dtypes.float8_e5m2 for name in types.split("_")]
    compressed = rng.integers(-3, 4, (dim, depth // 2)).astype(kinds[0])
    dense = rng.integers(-2, 3, (depth, dim)).astype(kinds[1])
    places = rng.permuted(np.tile(np.arange(4), (dim, depth // 4, 1)), axis=2)[..., :2]  # in any order, never the same
    a, b = np.zeros((64, 16), np.uint8), np.zeros((64, 32), np.uint8)
    index = np.zeros(64, np.uint32)
    for row in range(dim):
        for column in range(depth // 2):
            bit = [column >> k & 1 for k in range(6)]
            if dim == 16:
                group, register = 2 * bit[5] + bit[3], 2 * bit[2] + bit[4]
            else:
                group, register = bit[4], 2 * bit[2] + bit[3]
            lane, byte = dim * group + row, 4 * register + column % 4
            a[lane, byte] = compressed[row, column].view(np.uint8)
            index[lane] |= np.uint32(places[row, column // 2, column % 2] << 2 * byte)
        for k in range(depth):
            lane = k % (8 * 64 // dim) // 8 * dim + row
            b[lane, 8 * (k // (8 * 64 // dim)) + k % 8] = dense[k, row].view(np.uint8)
    c = rng.integers(-9, 10, (dim, dim)).astype(np.float32)
    wanted = c.astype(float)
    for row in range(dim):
        for column in range(depth // 2):
            k = 4 * (column // 2) + places[row, column // 2, column % 2]
            wanted[row] += float(compressed[row, column]) * dense[k].astype(float)
    registers = {4 + n: word for n, word in enumerate(a.view(np.uint32).T)}
    registers |= {16 + n: word for n, word in enumerate(b.view(np.uint32).T)}
    registers |= {64 + n: word for n, word in enumerate(in_lanes(c, dim).astype(np.float32))} | {3: index}
    last = 63 + dim * dim // 64
    text = f"v_smfmac_f32_{dim}x{dim}x{depth}_{types} v[64:{last}], v[4:7], v[16:23], v3"
    got = run(text, registers).v[64 : last + 1].view(np.float32)
    np.testing.assert_array_equal(got, in_lanes(wanted, dim))
