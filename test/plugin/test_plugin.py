"""`--emit-plugin`: a stock iree-compile with the emitted files makes the kernels that we make in process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from iree.compiler import ir
from kernels import Kernel, compiled, kernels
from modules import Matmul, source
from shapes import Shaped
from spread import quick_if

import mxcomp
import mxcomp.ir as mx
from mxcomp.errors import InputError
from mxcomp.options import Options
from mxcomp.plugin.emit import emit_plugin
from mxcomp.report.report import Report
from mxcomp.run.runtime import run
from mxcomp.target import get_target

PROGRAMS = Path(sys.executable).parent
FLAGS = get_target("gfx950").iree_flags

EXACT = Matmul(256, 512, 1024)
PADDED = Matmul(1000, 1000, 1056)
NARROW = Matmul(40, 300, 544)
CONSTANT = Matmul(200, 300, 544, constant_rhs=True)
UNFUSED = Matmul(130, 256, 512, form="unfused")
DYNAMIC = Matmul(1000, 1000, 1056, dynamic_m=True)
MODELS = [(EXACT,), (PADDED,), (NARROW,), (CONSTANT,), (UNFUSED,), (EXACT, NARROW, EXACT)]
CONFIGURATIONS = [{}, {"ukernels": "none"}, {"data_tiling": False}]


def emitted(text: str, directory: Path, **options: Any) -> Report:
    return emit_plugin(text, Options.make(**options), directory / "plugin", FLAGS, FLAGS)


def stock_compile(text: str, directory: Path, *flags: str) -> str:
    """Runs iree-compile with the plugin, in another directory than the plugin's; returns what it prints."""
    (directory / "model.mlir").write_text(text)
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    command = [PROGRAMS / "iree-compile", f"@{directory / 'plugin' / 'mxcomp.rsp'}", directory / "model.mlir", *flags]
    result = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def stock_kernels(text: str, directory: Path) -> list[Kernel]:
    return kernels(lambda flag: stock_compile(text, directory, flag, "-o", str(directory / "model.vmfb")))


def essence(kernel: Kernel) -> list[Any]:
    """Memory, LDS and matrix instructions with their counts. Address arithmetic depends on where IREE puts buffers."""
    counts = kernel.assembly.instructions.items()
    kept = sorted(item for item in counts if item[0].startswith(("buffer_", "global_", "ds_", "v_mfma", "scratch_")))
    return [kernel.assembly.lds_bytes, kernel.assembly.scratch_bytes, kernel.assembly.spills, *kept]


TURNED = ("rki", "kir", "rk", "kr")
SHAPED = [
    Shaped(40, 132, 96, orders=TURNED, sliced="1", types=("f4E2M1FN", "f6E2M3FN")),
    Shaped(40, 132, 96, batch=2, orders=("brki", "brki", "brk", "brk")),
    Shaped(40, 132, 96, dynamic="nk"),
    Shaped(40, 132, 96, orders=TURNED),
    Shaped(40, 132, 96, sliced="1", types=("f4E2M1FN", "f6E2M3FN")),
]


@pytest.mark.parametrize("shaped", quick_if(SHAPED[:3].__contains__, SHAPED), ids=str)
def test_shapes(shaped: Shaped, tmp_path: Path) -> None:
    """Operands in any order, batches and dynamic sizes, run on the simulator."""
    emitted(shaped.text(), tmp_path)
    stock_compile(shaped.text(), tmp_path, "-o", str(tmp_path / "model.vmfb"))
    (result,) = run((tmp_path / "model.vmfb").read_bytes(), "main", shaped.inputs, "sim")
    assert shaped.error(result) <= shaped.bound


CASES = [(matmuls, options) for matmuls in MODELS for options in CONFIGURATIONS]
QUICK = [(MODELS[-1], {}), ((NARROW,), {"ukernels": "none"}), ((UNFUSED,), {"data_tiling": False})]


@pytest.mark.parametrize(
    "case", quick_if(QUICK.__contains__, CASES), ids=lambda case: f"{'+'.join(map(str, case[0]))}-{case[1]}"
)
def test_same_kernels(case: tuple[tuple[Matmul, ...], dict[str, Any]], tmp_path: Path) -> None:
    """By default each configuration with a model of its own."""
    matmuls, options = case
    text = source(*matmuls)
    report = emitted(text, tmp_path, **options)
    program, ours = compiled(text, **options)
    assert report.to_json() == program.report.to_json()
    assert sorted(map(essence, stock_kernels(text, tmp_path))) == sorted(map(essence, ours))


def test_dynamic_m(tmp_path: Path) -> None:
    """Both ways make the same code of this kernel. One of a single wave stores each element behind a branch here."""
    text, name = source(DYNAMIC), "mx_f4E2M1FN_f4E2M1FN_f32_m32_n32_k512"
    emitted(text, tmp_path, ukernels=name)
    _, ours = compiled(text, versions=False, ukernels=name)
    theirs = stock_kernels(text, tmp_path)
    # Bounds of the scales' buffer are checked in another way here: as wide accesses, not the same instructions.
    assert widths(theirs) == widths(ours)
    assert [essence(k) for k in theirs if k.assembly.count("v_mfma")] == [
        essence(k) for k in ours if k.assembly.count("v_mfma")
    ]


def widths(found: list[Kernel]) -> list[tuple[list[str], list[str]]]:
    return sorted((sorted(kernel.loads), sorted(kernel.stores)) for kernel in found)


@pytest.mark.parametrize("matmul", quick_if(lambda matmul: matmul != EXACT, [EXACT, CONSTANT, DYNAMIC]), ids=str)
def test_no_operand_is_copied(matmul: Matmul, tmp_path: Path) -> None:
    text = source(matmul)
    emitted(text, tmp_path)
    stream = stock_compile(text, tmp_path, "--compile-to=stream")
    assert stream.count("stream.cmd.dispatch") == (3 if matmul.constant_rhs else 5)
    for copy in ("stream.async.clone", "stream.async.copy", "stream.cmd.copy"):
        assert copy not in stream


def test_ours_not_the_builtin(tmp_path: Path) -> None:
    text = source(EXACT)
    ukernel = emitted(text, tmp_path).matmuls[0].ukernel
    configured = stock_compile(text, tmp_path, "--compile-to=executable-configurations")
    assert ukernel is not None
    assert ukernel in configured
    assert "pingpong" not in configured
    assert "enable-tensor-ukernels" not in (tmp_path / "plugin" / "mxcomp.rsp").read_text()


def test_a_moved_plugin(tmp_path: Path) -> None:
    """The script has iree-compile make what the response file does, from a directory whose name needs quoting."""
    text, phase = source(NARROW), "--compile-to=executable-configurations"
    emitted(text, tmp_path)
    configured = stock_compile(text, tmp_path, phase)
    assert "mx_f4" in configured
    moved = tmp_path / "an other's $HOME"
    (tmp_path / "plugin").rename(moved)
    environment = {"PATH": "/usr/bin:/bin", "IREE_COMPILE": str(PROGRAMS / "iree-compile")}
    command = ["sh", moved / "compile.sh", "model.mlir", phase]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == configured


def test_a_plugin_where_iree_cannot_read_it(tmp_path: Path) -> None:
    emitted(source(NARROW), tmp_path)
    moved = (tmp_path / "plugin").rename(tmp_path / 'with "quotes"')
    result = subprocess.run(["sh", moved / "compile.sh"], capture_output=True, text=True)
    assert (result.returncode, "quotes or braces" in result.stderr) == (2, True)


def test_other_shapes_do_not_match(tmp_path: Path) -> None:
    emitted(source(EXACT), tmp_path)
    assert "ukernel_descriptor" not in stock_compile(source(PADDED), tmp_path, "--compile-to=executable-configurations")


def test_user_flags_go_into_the_response_file(tmp_path: Path) -> None:
    flags = (*FLAGS, "--iree-opt-level=O2")
    emit_plugin(source(EXACT), Options.make(), tmp_path / "plugin", flags, flags)
    assert '"--iree-opt-level=O2"' in (tmp_path / "plugin" / "mxcomp.rsp").read_text().splitlines()


NAMES = ["a,b 'c", 'a "b" c', "a\\b{c}", "a\tb\nc", "a(b)@=é"]
SIMPLE_NAMES = ["a b", "a'b", 'a"b', "a 'b", "a,b", "a{b}", "a\\b"]


@pytest.mark.parametrize("name", quick_if(NAMES.__contains__, NAMES + SIMPLE_NAMES))
def test_any_name_of_a_directory(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    ukernel = emitted(source(NARROW), tmp_path / name).matmuls[0].ukernel
    configured = stock_compile(source(NARROW), tmp_path / name, "--compile-to=executable-configurations")
    assert ukernel is not None
    assert ukernel in configured


@pytest.mark.parametrize("name", ["a{b", "a}b", "a}{b", "a'b\"c"])
def test_names_that_iree_cannot_read_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="both kinds of quotes or unmatched braces"):
        emitted(source(NARROW), tmp_path / name)
    assert not (tmp_path / name).exists()


def test_flags_reach_iree_as_they_are(tmp_path: Path) -> None:
    dump = tmp_path / 'a "dump" of\\it'
    flags = (*FLAGS, f"--iree-hal-dump-executable-sources-to={dump}")
    emit_plugin(source(NARROW), Options.make(), tmp_path / "plugin", flags, FLAGS)
    stock_compile(source(NARROW), tmp_path, "--compile-to=executable-configurations")
    assert list(dump.iterdir())


def test_nothing_to_emit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no scaled matmul"):
        emitted("func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }", tmp_path)
    assert not (tmp_path / "plugin").exists()


def test_what_iree_would_evaluate_too_late_is_refused(tmp_path: Path) -> None:
    """A factor that is calculated from constants: in process it is kept for run time, which a plugin cannot do."""
    codes, scales = np.full((16, 64), 0x38, np.uint8), np.full((16, 2), 127, np.uint8)

    def negated(w: ir.Value, w_scale: ir.Value) -> ir.Value:
        constant = mx.constant(codes, scales, "E4M3")
        calculated = mx.elementwise(lambda x: mx.multiply(x, -1.0), constant.elements, result="f8E4M3FN")
        return mx.scaled_matmul(mx.Operand(calculated, constant.scales), mx.operand(w, w_scale, "E2M1"))

    text = str(mx.module(negated, "32x32xi8", "32x2xi8"))
    with pytest.raises(InputError, match=r"calculated from constants after their packing.*with mxcomp-compile"):
        emitted(text, tmp_path)
    assert not (tmp_path / "plugin").exists()


def test_what_iree_would_make_one_tensor_is_refused(tmp_path: Path) -> None:
    """LHS and RHS are quantised alike, each for itself: kernels that the plugin has for two tensors do not fit one."""

    def square(x: ir.Value) -> ir.Value:
        return mx.scaled_matmul(mx.quantise(x, "E2M1"), mx.quantise(x, "E2M1"))

    with pytest.raises(InputError, match=r"LHS and RHS are computed alike.*with mxcomp-compile"):
        emitted(str(mx.module(square, "17x544xf32")), tmp_path)
    assert not (tmp_path / "plugin").exists()


def two_of_one(x: ir.Value, x_scales: ir.Value, *weights: ir.Value) -> ir.Value:
    """Two matmuls of one operand, and what is made of their results."""
    lhs = mx.operand(x, x_scales, "E2M1")
    first, second = (
        mx.scaled_matmul(lhs, mx.operand(elements, scales, "E2M1")) for elements, scales in (weights[:2], weights[2:])
    )
    return mx.elementwise(lambda a, b: mx.multiply(a, b), first, second, result="bf16")


def one_activated(a: ir.Value, a_scales: ir.Value, b: ir.Value, b_scales: ir.Value) -> ir.Value:
    """A matmul, and an activation function that has a constant."""
    product = mx.scaled_matmul(mx.operand(a, a_scales, "E2M1"), mx.operand(b, b_scales, "E2M1"))
    return mx.elementwise(lambda a: mx.maximum(a, 0.0), product)


LEFT, RIGHT = ("64x128xi8", "64x8xi8"), ("96x128xi8", "96x8xi8")


@pytest.mark.parametrize(
    ("model", "types", "ours", "theirs"),
    [
        (two_of_one, (*LEFT, *RIGHT, *RIGHT), 8, 8),  # six packings, two matmuls, the product in one of them
        (one_activated, (*LEFT, *RIGHT), 5, 6),
    ],
)
def test_as_few_dispatches_as_in_process(model: Any, types: Any, ours: int, theirs: int, tmp_path: Path) -> None:
    """Where IREE can match a whole function."""
    text = str(mx.module(model, *types))
    emitted(text, tmp_path)
    dispatches = [
        mxcomp.compile(text, compile_to="flow").vmfb.decode(),
        stock_compile(text, tmp_path, "--compile-to=flow"),
    ]
    assert [found.count("flow.dispatch @") for found in dispatches] == [ours, theirs]
    stock_compile(text, tmp_path, "-o", str(tmp_path / "model.vmfb"))
    rng = np.random.default_rng(0)
    shapes = [tuple(map(int, kind.split("x")[:2])) for kind in types]
    inputs = [rng.integers(*((120, 130) if shape[1] == 8 else (-128, 128)), shape).astype(np.int8) for shape in shapes]
    vmfb = (tmp_path / "model.vmfb").read_bytes()
    (found,), (expected,) = run(vmfb, None, inputs, "sim"), mxcomp.compile(text).run(*inputs)
    np.testing.assert_array_equal(found, expected)


def test_the_report_is_of_the_plugin(tmp_path: Path) -> None:
    """A matmul taken alone is not quantised in a dispatch of ours, and weights are not dequantised in one."""

    def model(x: Any, w: Any, scales: Any, small: Any, small_scales: Any) -> list[Any]:
        y = mx.scaled_matmul(mx.quantise(x, "E2M1"), mx.operand(w, scales, "E2M1"))
        return [y, mx.dequantised_matmul(x, mx.operand(small, small_scales, "E2M1"))]

    text = str(mx.module(model, "16x1024xbf16", "96x512xi8", "96x32xi8", "80x512xi8", "80x32xi8"))
    ours = mxcomp.compile(text).report.matmuls
    assert ["LHS is quantised by" in (matmul.note or "") for matmul in ours] == [True, False]
    assert all(matmul.dispatches for matmul in ours)
    taken, left = emitted(text, tmp_path).matmuls
    assert (taken.ukernel, taken.dispatches, taken.kernel) == (ours[0].ukernel, [], None)
    assert "taken apart from what quantises" in (taken.note or "")
    assert (left.operands, left.ukernel) == ("plain", None)
    assert "mxcomp-compile" in (left.reason or "")
    flow = stock_compile(text, tmp_path, "--compile-to=flow")
    assert "mx_dequantising" not in flow and "mx_quantising" not in flow
