"""Reports for people: one line, and a table as wide as the terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest

from mxcomp.report import Report, ScaledMatmul
from mxcomp.report.table import short_location

LONG = "/somewhere/deep/inside/of/a/checkout/of/models/transformer_block_with_a_long_name.py"
OURS = ScaledMatmul(
    f"{LONG}:1234:5", 0, 64, 14336, 4096, ["f4E2M1FN", "f4E2M1FN"], operands="data_tiled",
    ukernel="mx_f4_f4_f32_m64_n128_k512", dispatches=["pack_lhs", "pack_lhs_scale", "matmul"],
)  # fmt: skip
GENERATED = ScaledMatmul(
    "model.mlir:2:1", 1, None, 300, 544, ["f8E5M2", "f4E2M1FN"], operands="data_tiled", dispatches=["matmul"]
)
LEFT = ScaledMatmul("model.mlir:3:1", operands="plain", reason="left to IREE: [block] size 16: expected 32")


@pytest.mark.parametrize(
    ("matmuls", "line"),
    [
        ([], "no scaled matmul in the module"),
        ([OURS], "1 scaled matmul: 1 by ukernels (mx_f4_f4_f32_m64_n128_k512); 3 dispatches"),
        ([GENERATED], "1 scaled matmul: 1 in a layout of ours by IREE's code generation; 1 dispatch"),
        ([LEFT], "1 scaled matmul: 1 left to IREE"),
        (
            [OURS, OURS, GENERATED, LEFT],
            "4 scaled matmuls: 2 by ukernels (mx_f4_f4_f32_m64_n128_k512), 1 in a layout of ours by IREE's code "
            "generation, 1 left to IREE; 7 dispatches",
        ),
        (
            [ScaledMatmul("", operands="data_tiled", ukernel=name) for name in "abcdea"],
            "6 scaled matmuls: 6 by ukernels (a, b, c and 2 more)",
        ),
    ],
)
def test_summary(matmuls: list[ScaledMatmul], line: str) -> None:
    assert Report("gfx950", matmuls).summary() == line


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_lines_fit_and_nothing_is_lost(width: int) -> None:
    stream = StringIO()
    Report("gfx950", [OURS, GENERATED, LEFT], left_out=["table.csv:3: no such ukernel"]).print(stream, width)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    text = "".join(stream.getvalue().split())
    for part in ("64×14336×4096", "?×300×544", "[block]size16:expected32", "table.csv:3:nosuchukernel"):
        assert part in text
    assert LONG not in text


def test_places_are_files_without_directories() -> None:
    assert short_location(f"{LONG}:1234:5") == "transformer_block_with_a_long_name.py:1234:5"
    assert short_location('loc("mlp.down/proj")') == 'loc("mlp.down/proj")'
    assert short_location("layers.0: a/b") == "layers.0: a/b"


@pytest.mark.parametrize("width", [80, 120, 140])
def test_layers_are_shown_once(width: int) -> None:
    """Matmuls that are the same but for numbers in their names; others apart."""
    layers = [
        replace(OURS, location="mlp.py:7:0", name=f"model.layers.{k}.mlp.{name}")
        for k in range(24)
        for name in ("gate", "up")
    ]
    other = replace(OURS, location="mlp.py:8:0", name="model.layers.7.mlp.down", n=96)
    stream = StringIO()
    Report("gfx950", [*layers, other]).print(stream, width)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for name in ("layers.*.mlp.gate (24)", "layers.*.mlp.up (24)", "layers.7.mlp.down"):
        assert text.count(name) == 1
    assert "64×14336×4096" in text
    assert "64×96×4096" in text
