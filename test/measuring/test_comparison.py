"""Programs in several configurations: modelled, and measured with the simulated device in the GPU's place."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp.errors import InputError
from mxcomp.layout.problem import Problem
from mxcomp.measuring import comparison, pictures, records
from mxcomp.measuring.comparison import AITER, Failed, Task, timed
from mxcomp.measuring.configurations import PARTS, Compiled
from mxcomp.measuring.dispatches import Stopwatch
from mxcomp.measuring.records import END_TO_END, Record
from mxcomp.measuring.subject import Subject
from mxcomp.target import get_target

SUBJECT = Subject(Problem(64, 64, 512, ("f4E2M1FN", "f4E2M1FN", "f8E8M0FNU", "f8E8M0FNU", "f32")), "f32")
SOURCE = SUBJECT.source().encode()
PACKED = ("dt + uk", "IREE dt")


def growing() -> Stopwatch:
    """A clock on which calls take 1, 5, 9, … µs."""
    return Stopwatch("sim", (1e-6 * tick**2 for tick in itertools.count()).__next__, runs=1, count=2)


@pytest.mark.parametrize("configuration", [*PACKED, "no dt + uk"])
def test_modelled(configuration: str) -> None:
    found = timed(Task("x", SOURCE, configuration, "sim", SUBJECT))
    assert isinstance(found, list)
    *dispatches, total = found
    assert {each.part for each in dispatches} == set(PARTS if configuration in PACKED else PARTS[:1])
    assert total.part == END_TO_END
    assert total.us == pytest.approx(sum(each.us for each in dispatches), abs=0.01)
    (matmul,) = (each for each in dispatches if each.part == "matmul")
    assert matmul.flops >= 2 * 64 * 64 * 512  # and what is padded
    assert all(each.low < each.us < each.high and each.source == "modelled" for each in found)


@pytest.mark.parametrize("configuration", ["dt + uk", pytest.param("IREE dt + uk", marks=pytest.mark.slow)])
def test_measured(configuration: str) -> None:
    """Every dispatch is repeated in a program of its own, whose call takes longer by what it takes."""
    found = timed(Task("x", SOURCE, configuration, "hip", SUBJECT), growing())
    assert isinstance(found, list)
    *dispatches, total = found
    assert [each.us for each in dispatches] == pytest.approx([4.0 * k for k in range(1, len(dispatches) + 1)])
    assert total.us == pytest.approx(1.0)
    assert {each.source for each in found} == {"measured"}


def test_wrong_results_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(_: bytes) -> Compiled:
        def matmul(a: ir.Value, s: ir.Value, b: ir.Value, t: ir.Value) -> ir.Value:
            product = mx.scaled_matmul(mx.operand(a, s, "E2M1"), mx.operand(b, t, "E2M1"))
            return mx.elementwise(lambda x: mx.multiply(x, 2.0), product)

        module = mx.module(matmul, *(f"{rows}x{columns}xi8" for rows, columns in SUBJECT.shapes))
        program = mxcomp.compile(module, compile_to="hal")
        return Compiled(program.vmfb, get_target("gfx950").iree_flags, program.report)

    monkeypatch.setattr(comparison, "CONFIGURATIONS", {"doubled": doubled})
    found = timed(Task("x", SOURCE, "doubled", "hip", SUBJECT), growing())
    assert isinstance(found, Failed)
    assert found.reason.startswith("its result is wrong: element (0, 0) is ")


def test_what_cannot_be_compiled_is_said() -> None:
    """Stock IREE 3.13 has no 6-bit operands; ours goes on."""
    fp6 = Subject(Problem(64, 64, 512, ("f6E2M3FN", "f6E2M3FN", "f8E8M0FNU", "f8E8M0FNU", "f32")))
    found = timed(Task("x", fp6.source().encode(), "IREE dt", "sim", fp6))
    assert isinstance(found, Failed)
    assert "IREE could not compile the module" in found.reason


def test_models() -> None:
    """Arguments are those that the function declares; a dispatch that is no matmul of ours keeps its name."""

    def model(a: ir.Value, s: ir.Value, b: ir.Value, t: ir.Value, x: ir.Value) -> list[ir.Value]:
        product = mx.scaled_matmul(mx.operand(a, s, "E2M1"), mx.operand(b, t, "E2M1"))
        return [product, mx.elementwise(mx.exp, x)]

    shapes = ["x".join(map(str, shape)) for shape in SUBJECT.shapes]
    source = str(mx.module(model, *(f"{shape}xi8" for shape in shapes), "1000xbf16"))
    found = timed(Task("model.mlir", source.encode(), "no dt + uk"))
    assert isinstance(found, list)
    assert [each.part for each in found if "elementwise" not in each.part] == ["matmul", END_TO_END]
    assert len(found) == 3
    dynamic = mx.module(lambda x: mx.elementwise(mx.exp, x), "?xf32")
    with pytest.raises(InputError, match=r"argument tensor<\?xf32>: expected a tensor of static sizes"):
        timed(Task("x", str(dynamic).replace("@<lambda>", "@main").encode(), "no dt"))


def test_no_checkout_of_the_peer(tmp_path: Path) -> None:
    found = timed(Task("x", SOURCE, AITER, "sim", SUBJECT, tmp_path))
    assert isinstance(found, Failed)
    assert "no checkout of ROCm/aiter" in found.reason


def test_written_and_read(tmp_path: Path) -> None:
    listed = [Record("x", "dt", "matmul", "f", "modelled", 1.5, 1.0, 2.0, "MFMA", 3.0, 4.0)]
    (tmp_path / "r.json").write_bytes(records.to_json(listed))
    assert records.from_json(tmp_path / "r.json", Record, "mxcomp-bench") == listed
    assert records.to_csv(listed, Record).decode().splitlines() == [
        "subject,configuration,part,kernel,source,us,low,high,bound,flops,unique_bytes",
        "x,dt,matmul,f,modelled,1.5,1.0,2.0,MFMA,3.0,4.0",
    ]
    (tmp_path / "r.json").write_text('[{"subject": 1}]')
    with pytest.raises(InputError, match=r"no list of mxcomp-bench: .*remove it, or write elsewhere"):
        records.from_json(tmp_path / "r.json", Record, "mxcomp-bench")


def test_pictures() -> None:
    listed = [
        Record("x", configuration, part, "f", "modelled", us, us - 1, us + 2)
        for configuration, us in (("dt", 8.0), ("IREE dt", 9.0))
        for part in ("matmul", "encode LHS", "another")[: 2 if us < 9 else 3]
    ]
    png = b"\x89PNG"
    assert pictures.bars(listed).startswith(png)
    assert pictures.speed({"ours": [(1e9, 10.0), (1e8, 3.0)], "peer": []}, "modelled").startswith(png)


def test_arguments_of_8_bit_floats() -> None:
    """As the first example has them."""
    source = (Path(__file__).parents[2] / "examples" / "first.mlir").read_bytes()
    found = timed(Task("first", source, "dt + uk"))
    assert not isinstance(found, Failed), found.reason
    *dispatches, total = found
    assert len(dispatches) == 5
    assert total.us == pytest.approx(sum(each.us for each in dispatches), abs=0.01)
