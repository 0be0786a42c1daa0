"""benchmarks/kernel_times.py: what it makes is what selection reads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import kernel_times


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "mx_f8E4M3FN_f8E4M3FN_f32_m16_n16_k512",
        "mx_f4E2M1FN_f4E2M1FN_f32_m16_n128_k512_single_wave",
        "mx_f6E2M3FN_f8E4M3FN_f32_m128_n128_k512",
        "mx_f4E2M1FN_f4E2M1FN_f32_m256_n256_k512_intrawave",
        "mx_fused_quant16_dual_f4E2M1FN_f4E2M1FN_f32_m16_n32_k512",
        "mx_bf16_f4E2M1FN_f32_m16_n32_k512",
    ],
)
def test_table_has_what_is_made_anew(name: str) -> None:
    instance = next(each for each in kernel_times.wanted((name,)) if each.name == name)
    found = [row for part in kernel_times.parts(instance) for row in kernel_times.replays(instance, *part)]
    names = {row["kernel"] for row in found}
    kept = [row for row in kernel_times._kept(kernel_times.TABLE, ("none",)) if row["kernel"] in names]
    assert [{key: str(value) for key, value in row.items()} for row in found] == kept
