"""Rules of a compute unit, one by one, beside what was measured on gfx950: cycles only, no fitted clock.

GT is ROCm/gfx950-gluon-tutorials (thread traces on MI355X), TRI the latency model of facebookexperimental/triton
(s_memtime), PH tingqli/pyhip.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from rules import TRACED, interval

from mxcomp.sim.timing.chip import Batch, Floats, Launch, Launches, Rates, modelled_us
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.target import get_target

CUS = get_target("gfx950").cus

SCALED = {
    "16x16x128": "v_mfma_scale_f32_16x16x128_f8f6f4 a[{0}:{3}], v[100:103], v[104:107], a[{0}:{3}], v108, v109 "
    "op_sel_hi:[0,0,0] cbsz:4 blgp:4",
    "32x32x64": "v_mfma_scale_f32_32x32x64_f8f6f4 a[{0}:{15}], v[100:103], v[104:107], a[{0}:{15}], v108, v109 "
    "op_sel_hi:[0,0,0] cbsz:4 blgp:4",
}


def scaled(shape: str, number: int) -> str:
    """One with an accumulator of its own."""
    size = 4 if shape == "16x16x128" else 16
    return SCALED[shape].format(*[size * number % 256 + k for k in range(16)])


MFMA = "v_mfma_f32_{0}_f16 a[{1}:{2}], v[100:103], v[104:107], a[{1}:{2}]"


def plain(shape: str, number: int) -> str:
    size = 4 if shape == "16x16x32" else 16
    return MFMA.format(shape, size * number % 256, size * number % 256 + size - 1)


# -- LDS (GT docs/lds_throughput.md and experiments/lds_throughput_validation; addresses as there: rows of 1024 bytes,
#    padded, by lane mod 16, 32 bytes apart by lane div 16)


def rows(pad: int, every_other: int = 0) -> str:
    return f"""
  v_and_b32_e32 v2, 15, v0
  v_mul_u32_u24_e32 v3, {1024 + pad}, v2
  v_lshrrev_b32_e32 v4, 1, v2
  v_mul_u32_u24_e32 v4, {every_other}, v4
  v_lshrrev_b32_e32 v5, 4, v0
  v_lshlrev_b32_e32 v5, 5, v5
  v_add3_u32 v2, v3, v4, v5"""


@pytest.mark.parametrize(
    ("waves", "pad", "every_other", "measured"),
    [
        (1, 16, 32, 8), (1, 16, 0, 8), (1, 64, 0, 8), (1, 256, 0, 32), (4, 16, 32, 16), (4, 32, 0, 32), (4, 128, 0, 64),
        (4, 4, 0, 256),
    ],
)  # fmt: skip
def test_lds_reads_of_16_bytes(waves: int, pad: int, every_other: int, measured: float) -> None:
    """Four phases of 256 bytes and conflicts for the CU, 128 bytes a cycle to a pair of SIMDs; misaligned: a lane."""
    assert interval("ds_read_b128 v[8:11], v2", waves, rows(pad, every_other)) == pytest.approx(measured, rel=0.05)


def test_lds_reads_of_8_bytes() -> None:
    assert interval("ds_read_b64 v[8:9], v2", 4, "v_lshlrev_b32_e32 v2, 3, v0") == pytest.approx(8, rel=0.05)


def test_lds_latency() -> None:
    """TRI: dependent ds_read_b32."""
    body = "ds_read_b32 v2, v8\ns_waitcnt lgkmcnt(0)"
    assert interval(body, prologue="v_mov_b32_e32 v8, 0") == pytest.approx(69, 0.05)


# -- instructions alone


@pytest.mark.parametrize(
    ("text", "measured", "tolerance"),
    [
        ("v_add_f32_e32 v8, v2, v3", 4, 0.0),  # GT kernels/attention/mfma_coissue_scheduling.md
        ("v_exp_f32_e32 v8, v2", 8, 0.0),  # the same: half of CDNA 3's 16
        ("v_fma_f32 v8, v8, v2, v3", 8, 0.05),  # TRI: one that depends on the last
        ("v_pk_fma_f32 v[8:9], v[2:3], v[4:5], v[6:7]", 6, 1 / 3),  # GT: 4 in one place, 8 in another
    ],
)
def test_vector_instructions(text: str, measured: float, tolerance: float) -> None:
    assert interval(text) == pytest.approx(measured, rel=tolerance)


@pytest.mark.parametrize(("shape", "measured"), [("16x16x32", 16.6), ("32x32x16", 32)])
def test_matrix_instructions(shape: str, measured: float) -> None:
    """TRI, GT: independent ones."""
    body = "\n".join(plain(shape, k) for k in range(4))
    assert interval(body) / 4 == pytest.approx(measured, rel=0.05)


def test_matrix_instructions_that_add_to_one_accumulator() -> None:
    """TRI: 18.3 cycles where independent ones take 16.6."""
    assert interval(plain("16x16x32", 0)) == pytest.approx(18.3, rel=0.05)


# -- beside matrix instructions: 8 cycles in which a SIMD issues nothing, 4 more of a scaled one


@pytest.mark.parametrize(("shape", "free"), [("16x16x32", 2), ("32x32x16", 6)])
def test_vector_instructions_beside_matrix_instructions(shape: str, free: int) -> None:
    """GT docs of attention: so many cost nothing, of either wave of a SIMD; the next one costs 4 cycles."""
    cycles = {"16x16x32": 16, "32x32x16": 32}[shape]

    def beside(count: int) -> float:
        vector = [f"v_add_f32_e32 v{8 + k}, v2, v3" for k in range(count)]
        body = "\n".join(line for k in range(2) for line in (plain(shape, k), *vector))
        return interval(body) / 2

    assert beside(free) == cycles
    assert beside(free + 1) == cycles + 4


def test_transcendental_functions_beside_a_matrix_instruction() -> None:
    """GT: three v_exp_f32 behind a 32×32×16."""
    vector = [f"v_exp_f32_e32 v{8 + k}, v2" for k in range(3)]
    assert interval("\n".join((plain("32x32x16", 0), *vector, plain("32x32x16", 1), *vector))) / 2 == 32


def test_packed_float32_waits_for_matrix_instructions() -> None:
    """GT, PH: 44 = 32 + 12 cycles from a 32×32×16 to the first packed instruction behind it."""
    body = "\n".join((plain("32x32x16", 0), "v_pk_mul_f32 v[8:9], v[2:3], v[4:5]"))
    assert interval(body) == pytest.approx(44 + 4, rel=0.05)


@pytest.mark.parametrize(("shape", "starts"), [("16x16x128", 1), ("32x32x64", 5)])
def test_lds_reads_beside_scaled_matrix_instructions(shape: str, starts: int) -> None:
    """GT kernels/gemm/inter_wave/a4w4: so many start behind each without a cost (b32, which no bus holds up)."""
    cycles = {"16x16x128": 16, "32x32x64": 32}[shape]

    def beside(count: int) -> float:
        reads = [f"ds_read_b32 v{8 + k}, v2" for k in range(count)]
        body = "\n".join(line for k in range(2) for line in (scaled(shape, k), *reads))
        return interval(body, prologue="v_lshrrev_b32_e32 v2, 2, v1") / 2

    assert beside(starts) == pytest.approx(cycles, rel=0.02)
    assert beside(starts + 1) == pytest.approx(cycles + 4, rel=0.02)


# -- vector memory


@pytest.mark.parametrize(("kind", "size", "measured"), [("dwordx4", 4, 16), ("dwordx2", 3, 16), ("dword", 2, 4)])
def test_coalesced_loads(kind: str, size: int, measured: float) -> None:
    """GT docs/tcp_bound_tile_model.md: cycles of a wave's load; four waves share the CU's."""
    last = {"dwordx4": "v[8:11]", "dwordx2": "v[8:9]", "dword": "v8"}[kind]
    prologue = f"v_lshrrev_b32_e32 v2, {4 - size}, v1"
    body = f"buffer_load_{kind} {last}, v2, s[4:7], 0 offen"
    for waves in (1, 4):
        assert interval(body, waves, prologue, latency=0.0) == pytest.approx(waves * measured, rel=0.05)


def test_bytes_in_flight() -> None:
    """GT: 44 KB for the CU, a round trip of 1000 cycles: 45 bytes a cycle."""
    cycles = interval("buffer_load_dwordx4 v[8:11], v1, s[4:7], 0 offen", 4, latency=1000.0)
    assert 4 * 1024 / cycles == pytest.approx(45, rel=0.05)


def test_lds_and_vector_memory_share_a_port() -> None:
    """GT kernels/attention: a ds_read and a buffer_load cannot issue together."""
    body = "ds_read_b32 v8, v2\nbuffer_load_dword v9, v2, s[4:7], 0 offen"
    assert interval(body, 1, "v_lshrrev_b32_e32 v2, 2, v1", latency=0.0, times=24) == pytest.approx(8, rel=0.05)


def test_direct_loads_take_write_cycles_of_lds() -> None:
    """GT kernels/gemm/intra_wave/a4w4/v0: what a direct load writes holds LDS reads up; how long was not measured."""
    read = "ds_read_b128 v[8:11], v2\n" * 8
    prologue = rows(16, 32)
    direct = "buffer_load_dwordx4 v1, s[4:7], 0 offen lds\n"
    alone, beside = (interval(read + extra, 4, prologue, latency=0.0, times=24) for extra in ("", direct))
    assert alone == pytest.approx(8 * 16, rel=0.02)
    assert beside == pytest.approx(8 * 16 + 4 * 1024 / TRACED.lds_direct, rel=0.1)


# -- memory of the chip


def streaming(workgroups: int, load_bytes: float = 64e6) -> Launch:
    """So many workgroups, each alone on a CU, that load what nobody else does."""
    loaded = workgroups * load_bytes
    return Launch((Batch(workgroups, 1, loaded, loaded),), 1, load_bytes, 0.0, 0.0, workgroups, loaded)


def terabytes(workgroups: int) -> float:
    """HBM's rate as the model has it, for so many workgroups that stream."""
    p = mi355x()

    def ask(rates: Rates, is_first: bool) -> tuple[Floats, Floats]:
        return streaming(workgroups).load_bytes / rates.bytes + rates.latency, np.zeros(1)

    us = float(modelled_us(Launches.of([streaming(workgroups)]), p, ask)[0]) - p.launch_us
    return streaming(workgroups).unique_bytes / us / 1e6


@pytest.mark.parametrize(
    ("workgroups", "low", "high"),
    [
        (32, 1.529, 1.69), (64, 2.864, 3.13), (96, 4.067, 4.31), (128, 4.580, 5.24), (160, 4.828, 5.90),
        (192, 5.628, 6.31), (224, 6.198, 6.48), (256, 6.373, 6.442),
    ],
)  # fmt: skip
def test_hbm_by_workgroups(workgroups: int, low: float, high: float) -> None:
    """TB/s. Low is GT kernels/memory_bound/gemm, a GEMV-like kernel; high is the microbenchmark of rocm-libraries'
    shared/origami. AITER's rows reach more than both (see below).
    """
    assert 0.95 * low <= terabytes(workgroups) <= 1.05 * high


def test_hbm_by_workgroups_as_aiters_rows_have_it() -> None:
    """Times of AITER's 32×128 with up to eight rows, without a replay: a constant, and bytes at a law of the same form.

    Weights above 3.2 MB, which no cache keeps; up to 160 workgroups, of which each has a CU.
    """
    from scipy.optimize import least_squares  # here, as each worker of pytest imports all tests

    with (Path(__file__).parents[3] / "benchmarks" / "data" / "mi355x_mxfp4_gemm.csv").open() as lines:
        table = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(lines)]
    rows = [
        row for row in table
        if row["m"] <= 8 and (row["tile_m"], row["tile_n"]) == (32, 128)
        and row["n"] * row["k"] * _BYTES > 3.2e6 and row["n"] <= 160 * 128
    ]  # fmt: skip
    m, n, k, us = (np.array([row[name] for row in rows]) for name in ("m", "n", "k", "us"))

    def rate(own: float, shared: float, workgroups: Floats) -> Floats:
        result: Floats = (own**-2 + (workgroups / shared) ** 2) ** -0.5
        return result

    def errors(law: Floats) -> Floats:
        found = law[0] + (128 + m) * k * _BYTES / rate(law[1], law[2], n / 128) / 2400
        logs: Floats = np.log(found / us)
        return logs

    law = least_squares(errors, [3.0, 23.0, 3600.0], loss="cauchy", f_scale=0.03, x_scale=[1, 10, 1000]).x
    assert len(rows) == 95
    assert np.median(np.abs(errors(law))) < 0.025
    for workgroups in (32, 64, 96, 128):
        measured = workgroups * float(rate(law[1], law[2], np.array(workgroups))) * 2.4e-3
        assert terabytes(workgroups) == pytest.approx(measured, rel=0.07)


_BYTES = 17 / 32
"""The bytes of an MXFP4 element and its share of a scale."""


@pytest.mark.parametrize(
    ("kind", "size", "measured"), [("dwordx4", 4, 6.373), ("dwordx2", 3, 6.373), ("dword", 2, 6.23)]
)
def test_hbm_by_access_width(kind: str, size: int, measured: float) -> None:
    """TB/s by 16, 8 and 4 bytes a lane, 256 workgroups (ORI); 2 bytes a lane, 5.11 TB/s, are no slower in the model."""
    p = mi355x()
    rates = Launches.of([streaming(256)]).rates(p, True)
    last = {"dwordx4": "v[8:11]", "dwordx2": "v[8:9]", "dword": "v8"}[kind]
    body, prologue = f"buffer_load_{kind} {last}, v2, s[4:7], 0 offen", f"v_lshrrev_b32_e32 v2, {4 - size}, v1"
    machine = TRACED._replace(return_bytes=float(rates.bytes[0]))
    cycles = interval(body, 4, prologue, machine, float(rates.latency[0]))
    terabytes = CUS * 4 * (64 << size) / cycles * p.clock_ghz / 1e3
    assert min(terabytes, p.hbm_terabytes) == pytest.approx(measured, rel=0.05)
