"""Tuned tables: what lines say is done, and what is wrong with a line is said, and nothing else of it used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp.errors import InputError
from mxcomp.layout.problem import Problem
from mxcomp.measuring.subject import Subject
from mxcomp.options import Options
from mxcomp.registry import Registry
from mxcomp.selection import tuned, tuned_lines
from mxcomp.selection.tuned_lines import COLUMNS, Key, Line
from mxcomp.target import get_target

TYPES = ("f4E2M1FN", "f4E2M1FN", "f8E8M0FNU", "f8E8M0FNU", "f32")
PROBLEM = Problem(128, 256, 512, TYPES)
STREAM, SHARED = "mx_f4E2M1FN_f4E2M1FN_f32_m16_n16_k512", "mx_f4E2M1FN_f4E2M1FN_f32_m64_n128_k512"
FEW = "mx_f6E2M3FN_f6E2M3FN_f32_m16_n32_k512"
LINE = Line(Key("gfx950", PROBLEM, "bf16"), STREAM, "measured", 12.34, 0.05)


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with ir.Context(), ir.Location.unknown():
        yield Registry(get_target("gfx950"))


def written(path: Path, *lines: Line) -> Path:
    path.write_text(tuned_lines.text(lines))
    return path


def with_field(path: Path, **fields: str) -> Path:
    """A table of LINE with other fields."""
    values = LINE.fields | fields
    path.write_text(f"{','.join(COLUMNS)}\n{','.join(values[name] for name in COLUMNS)}\n")
    return path


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    dynamic = replace(LINE, key=Key("gfx950", replace(PROBLEM, m=None, batch=(2, 8))), margin=None, use=False)
    lines, faults = tuned_lines.read(written(tmp_path / "t.csv", LINE, dynamic))
    assert not faults
    assert lines == [replace(LINE, number=2), replace(dynamic, number=3)]


def test_a_line_for_the_result_type_comes_before_one_for_any(tmp_path: Path, registry: Registry) -> None:
    other = replace(LINE, key=Key("gfx950", PROBLEM), kernel=SHARED)
    table = tuned.read(written(tmp_path / "t.csv", other, LINE), registry)
    found = {result: table.find(PROBLEM, result) for result in ("bf16", "f32")}
    assert {result: entry and entry.ukernel.name for result, entry in found.items()} == {"bf16": STREAM, "f32": SHARED}
    assert table.find(replace(PROBLEM, m=129), "bf16") is None
    assert found["bf16"] is not None
    assert found["bf16"].note == "tuned table line 3: measured 12.3 µs; the second best takes 5.0% longer"


def test_lines_for_other_architectures_are_no_fault(tmp_path: Path, registry: Registry) -> None:
    table = tuned.read(with_field(tmp_path / "t.csv", arch="gfx1250", kernel="unknown_here"), registry)
    assert not table.faults
    assert not table.entries


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"version": "0.0.1"}, f"made by mxcomp 0.0.1, this is {mxcomp.__version__}: run mxcomp-tune --force"),
        ({"kernel": "mx_nothing"}, "unknown kernel 'mx_nothing': run mxcomp-tune again"),
        ({"kernel": f"{FEW}_w1_r8"}, f"unknown kernel '{FEW}_w1_r8': it is called {FEW}_single_wave_max_m8 now; run"),
        ({"kernel": "mx_f4_f4_f32_row_major_m128_n256_k256"}, "takes row_major operands"),
        ({"k": "48"}, "does not fit: K = 48 is not a multiple of 32"),
        ({"lhs": "f8E4M3FN"}, "does not fit: it takes f4E2M1FN × f4E2M1FN, not f8E4M3FN × f4E2M1FN"),
        ({"kernel": "mx_f4E2M1FN_f6E2M3FN_f32_m128_n256_k128", "rhs": "f6E2M3FN", "m": "64"}, "M = 64 is below 65"),
        ({"split_k": "4"}, "split_k is 4: K has 1 tiles of 512, which are not 4 equal parts"),
        ({"order": "xcd"}, "order is 'xcd'"),
        ({"m": "-1"}, "m is '-1': expected a positive whole number"),
        ({"n": "many"}, "n is 'many': expected a positive whole number"),
        ({"batch": "2x"}, "batch is '2x': expected nothing, or sizes"),
        ({"result": "fp16"}, "result is 'fp16': expected one of f32, bf16, f16"),
        ({"source": "guessed"}, "source is 'guessed': expected modelled or measured"),
        ({"us": "nan"}, "us is 'nan': expected microseconds"),
        ({"us": ""}, "us is '': expected microseconds"),
        ({"margin": "5%"}, "margin is '5%': expected nothing, or a number"),
        ({"use": "yes"}, "use is 'yes': expected 1, or 0"),
        ({"use": "1,7"}, "expected 19 fields as in the first line"),
    ],
)
def test_a_bad_line_is_left_out(tmp_path: Path, registry: Registry, fields: dict[str, str], message: str) -> None:
    path = with_field(tmp_path / "t.csv", **fields)
    table = tuned.read(path, registry)
    assert not table.entries
    (fault,) = table.faults
    assert str(fault).startswith(f"{path}:2: ")
    assert message in str(fault)
    assert str(fault).endswith(": the line is left out")


def test_the_first_of_two_lines_counts(tmp_path: Path, registry: Registry) -> None:
    path = written(tmp_path / "t.csv", LINE, replace(LINE, kernel=SHARED))
    table = tuned.read(path, registry)
    assert [entry.ukernel.name for entry in table.entries.values()] == [STREAM]
    assert "line 2 is about the same problem" in str(*table.faults)


def test_a_short_line_and_a_missing_column(tmp_path: Path, registry: Registry) -> None:
    path = written(tmp_path / "t.csv", LINE)
    path.write_text(path.read_text().rpartition(",")[0] + "\n")
    assert "expected 19 fields" in str(*tuned.read(path, registry).faults)
    path.write_text(path.read_text().replace(",split_k", "", 1))
    (fault,) = tuned.read(path, registry).faults
    assert f"{path}:1: no column split_k: expected version,arch," in str(fault)


def test_files_that_cannot_be_read(tmp_path: Path, registry: Registry) -> None:
    with pytest.raises(InputError, match=r"no\.csv: cannot be read: No such file"):
        tuned.read(tmp_path / "no.csv", registry)
    (tmp_path / "latin1.csv").write_bytes(b"\xe9\n")
    with pytest.raises(InputError, match=r"latin1\.csv: cannot be read: 'utf-8'"):
        tuned.read(tmp_path / "latin1.csv", registry)


def test_options_that_contradict_a_table() -> None:
    with pytest.raises(InputError, match="expected --data-tiling=on"):
        Options.make(data_tiling=False, tuned="t.csv")
    for ukernels in ("none", STREAM):
        with pytest.raises(InputError, match=f"--ukernels={ukernels}: expected fastest or benefit"):
            Options.make(ukernels=ukernels, tuned="t.csv")


def model(result: str, same: bool = False) -> ir.Module:
    def main(a: ir.Value, s: ir.Value, b: ir.Value, t: ir.Value) -> ir.Value:
        lhs = mx.operand(a, s, "E2M1")
        product = mx.scaled_matmul(lhs, lhs if same else mx.operand(b, t, "E2M1"))
        return mx.elementwise(lambda x: mx.multiply(x, 2.0), product, result=result)

    return mx.module(main, "128x256xi8", "128x16xi8", "256x256xi8", "256x16xi8")


@pytest.mark.parametrize("ukernels", ["benefit", "fastest"])
def test_a_table_comes_first(tmp_path: Path, ukernels: str) -> None:
    """Also beside lines that are left out, which the report names; for another result nothing is said."""
    path = written(tmp_path / "t.csv", replace(LINE, kernel="mx_nothing"), replace(LINE, kernel=SHARED))
    plain = mxcomp.compile(model("bf16"), ukernels=ukernels, compile_to="input").report
    with_table = mxcomp.compile(model("bf16"), ukernels=ukernels, compile_to="input", tuned=path).report
    other = mxcomp.compile(model("f32"), ukernels=ukernels, compile_to="input", tuned=path).report
    assert plain.matmuls[0].ukernel == other.matmuls[0].ukernel != SHARED
    assert with_table.matmuls[0].ukernel == SHARED
    assert with_table.matmuls[0].note == "tuned table line 3: measured 12.3 µs; the second best takes 5.0% longer"
    assert plain.left_out == []
    assert '"left_out"' not in plain.to_json()
    (left_out,) = with_table.left_out
    assert left_out.startswith(f"{path}:2: unknown kernel 'mx_nothing'")
    assert "unknown kernel 'mx_nothing'" in with_table.to_json()


def test_lines_that_are_not_followed(tmp_path: Path) -> None:
    """The report says why."""
    unused = mxcomp.compile(
        model("bf16"),
        ukernels="fastest",
        compile_to="input",
        tuned=written(tmp_path / "t.csv", replace(LINE, kernel=SHARED, use=False)),
    ).report
    assert unused.matmuls[0].ukernel != SHARED
    note = str(unused.matmuls[0].note)
    assert note.endswith("; tuned table line 2: measured 12.3 µs, which is not followed: use is 0")
    square = replace(LINE, key=Key("gfx950", replace(PROBLEM, n=128), "bf16"))
    same = mxcomp.compile(
        model("bf16", same=True), compile_to="input", tuned=written(tmp_path / "u.csv", square)
    ).report
    assert same.matmuls[0].ukernel != STREAM
    assert "LHS and RHS may be one tensor" in str(same.matmuls[0].note)


def test_a_line_for_a_size_that_is_dynamic(tmp_path: Path) -> None:
    def main(a: ir.Value, s: ir.Value, b: ir.Value, t: ir.Value) -> ir.Value:
        return mx.scaled_matmul(mx.operand(a, s, "E2M1"), mx.operand(b, t, "E2M1"))

    module = mx.module(main, "?x256xi8", "?x16xi8", "256x256xi8", "256x16xi8")
    line = replace(LINE, key=Key("gfx950", replace(PROBLEM, m=None)), source="modelled")
    table = written(tmp_path / "t.csv", line)
    (matmul,) = mxcomp.compile(module, compile_to="input", tuned=table).report.matmuls
    assert matmul.ukernel == STREAM
    assert str(matmul.note).startswith("tuned table line 2: modelled 12.3 µs")


@pytest.mark.parametrize("batch", [(), (2,)])
def test_what_a_table_says_is_what_runs(tmp_path: Path, batch: tuple[int, ...]) -> None:
    """And it is right."""
    subject = Subject(replace(PROBLEM, m=40, n=96, batch=batch), "bf16")
    table = written(tmp_path / "t.csv", replace(LINE, key=Key("gfx950", subject.problem, "bf16"), kernel=SHARED))
    program = mxcomp.compile(subject.source(), tuned=table)
    assert program.report.matmuls[0].ukernel == SHARED
    operands = subject.operands()
    (result,) = program.run(*operands)
    assert subject.objection(operands, result) == ""
