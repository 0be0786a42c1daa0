"""Which place in a program each launch of a call comes from."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxcomp.errors import InputError
from mxcomp.profiling import reports
from mxcomp.profiling.launches import Launch, assigned

LAYERS = [
    Launch(kernel, "matmul", modules=(f"layers.{k}.{name}",), function="main")
    for k in range(3)
    for kernel, name in (("wide", "gate"), ("wide", "up"), ("narrow", "down"))
]
LOADING = Launch("wide", "pack_rhs")


def modules(found: list[tuple[Launch, ...]]) -> list[list[str]]:
    return [[place.name for place in each] for each in found]


def test_layers_share_kernels() -> None:
    """Gate, up and down of every layer apart, though the kernels are two."""
    found = assigned([place.kernel for place in LAYERS], LAYERS)
    assert modules(found) == [[place.name] for place in LAYERS]


def test_loading_comes_first() -> None:
    """Wherever in the module, and with the same kernel."""
    found = assigned(["wide", *(place.kernel for place in LAYERS)], [*LAYERS, LOADING])
    assert found == [(LOADING,), *((place,) for place in LAYERS)]


def test_of_two_branches_each_is_possible() -> None:
    """With kernels that tell, it is one; without, both are named."""
    small, large = Launch("small", function="main"), Launch("large", function="main")
    program = [LAYERS[0], small, large, LAYERS[2], small, large]
    assert assigned(["wide", "large", "narrow", "small"], program) == [(LAYERS[0],), (large,), (LAYERS[2],), (small,)]
    gate, up = LAYERS[:2]
    assert assigned(["wide"], [gate, up]) == [(gate, up)]


def test_in_loops_all_places_of_a_kernel() -> None:
    found = assigned(["wide", "wide", "narrow"] * 2, LAYERS[:3])
    assert modules(found) == [["layers.0.gate", "layers.0.up"]] * 2 + [["layers.0.down"]] + [
        ["layers.0.gate", "layers.0.up"]
    ] * 2 + [["layers.0.down"]]


def test_functions_are_told_apart() -> None:
    """By what was called, or by what was launched."""
    other = [replace(place, function="prefill", modules=("prefill",)) for place in LAYERS[:2]]
    program = [*LAYERS[:3], *other]
    assert assigned(["wide", "wide"], program, "prefill") == [(place,) for place in other]
    assert assigned(["wide", "wide", "narrow"], program) == [(place,) for place in LAYERS[:3]]
    assert assigned(["wide", "wide"], program) == [(LAYERS[0], other[0]), (LAYERS[1], other[1])]


def test_kernels_of_another_program_have_no_place() -> None:
    assert assigned(["unknown", "wide"], LAYERS[:1]) == [(), (LAYERS[0],)]
    assert assigned(["unknown"], []) == [()]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.data())
def test_the_right_place_is_always_among_them(kernels: list[str], data: st.DataObject) -> None:
    """Whichever places launched; where all did, it is the only one."""
    places = [Launch(kernel, modules=(str(k),), function="main") for k, kernel in enumerate(kernels)]
    taken = [place for place in places if data.draw(st.booleans())]
    for place, found in zip(taken, assigned([place.kernel for place in taken], places), strict=True):
        assert place in found
    assert assigned(kernels, places) == [(place,) for place in places]


def test_names() -> None:
    """By modules, by the place, or by the number of a matmul where the source has neither."""
    places = (
        Launch("k", "matmul", 3, ("gate", "up"), "m.py:1:0"), Launch("k", "matmul", 3, location="m.mlir:1:0"),
        Launch("k", "matmul", 3), Launch("k"),
    )  # fmt: skip
    assert [place.name for place in places] == ["gate + up", "m.mlir:1:0", "matmul 3", ""]


def test_reports_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"matmuls": [], "launches": [asdict(place) for place in LAYERS]}))
    assert list(reports.read(path).launches) == LAYERS
    for text in (
        "",
        "{}",
        '{"matmuls": [], "launches": [{"what": 1}]}',
        '{"matmuls": [], "launches": 3}',
        "[" * 100_000,
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=r"report\.json is no report of this version of mxcomp"):
            reports.read(path)
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        reports.read(tmp_path / "none")
