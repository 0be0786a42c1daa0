"""A user's own kernels in Python: the example that is faster than all others, a tile of one's own, and bad files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from iree.compiler import ir

import mxcomp
from mxcomp import formats
from mxcomp.errors import UkernelError
from mxcomp.formats import element_format
from mxcomp.ir import module, operand, scaled_matmul
from mxcomp.options import Options
from mxcomp.plugin.emit import emit_plugin
from mxcomp.plugin.response_file import LINK
from mxcomp.registry import Registry
from mxcomp.target import get_target

EXAMPLE = Path(__file__).parents[2] / "examples" / "ukernels" / "m128_n224.py"
NAME, M, N = "own_f4_f4_f32_m128_n224_k512", 2048, 3584
BOUNDS = '"m": {"min": 2048, "max": 2048}, "n": {"min": 3584, "max": 3584}, '
FP4 = element_format("f4E2M1FN")


def matmul(m: int, n: int, k: int) -> str:
    def of(a: ir.Value, a_scale: ir.Value, b: ir.Value, b_scale: ir.Value) -> ir.Value:
        return scaled_matmul(operand(a, a_scale, FP4), operand(b, b_scale, FP4))

    return str(module(of, *(f"{rows}x{size}xi8" for rows in (m, n) for size in (k // 2, k // 32))))


def zeros(m: int, n: int, k: int) -> list[np.ndarray]:
    return [np.zeros((rows, size), np.int8) for rows in (m, n) for size in (k // 2, k // 32)]


def test_the_example_is_taken_where_it_says_it_is() -> None:
    for m, taken in ((M, True), (M - 1, False)):
        program = mxcomp.compile(matmul(m, N, 8192), ukernel_dirs=[EXAMPLE.parent], compile_to="input")
        assert (program.report.matmuls[0].ukernel == NAME) == taken


def test_the_example_is_right(tmp_path: Path) -> None:
    """For several tiles with padding, by NumPy; without the bounds of the one size that it is for."""
    text = EXAMPLE.read_text()
    assert BOUNDS in text
    (tmp_path / "own.py").write_text(text.replace(BOUNDS, ""))
    m, n, k = 40, 200, 1056
    program = mxcomp.compile(matmul(m, n, k), ukernel_dirs=[tmp_path], strict=True)
    assert program.report.matmuls[0].ukernel == NAME
    rng = np.random.default_rng(7)
    given = [
        array
        for rows in (m, n)
        for array in (rng.integers(0, 256, (rows, k // 2), np.uint8), rng.integers(122, 132, (rows, k // 32), np.uint8))
    ]
    (found,) = program.run(*(array.view(np.int8) for array in given), checks="all")
    a, b = (numbers(*given[side : side + 2]) for side in (0, 2))
    assert np.abs(found - a @ b.T).max() <= 1e-5 * (np.abs(a) @ np.abs(b).T).max()
    assert np.abs(a @ b.T).min() > 0


def numbers(elements: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The values of codes, by the tables of the OCP specification."""
    positive = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = np.concatenate([positive, -positive])[np.stack([elements & 15, elements >> 4], axis=-1)]
    blocks = values.reshape(*scales.shape, formats.MX_BLOCK)
    return (blocks * np.exp2(scales.astype(float) - 127)[..., None]).reshape(len(scales), -1)


@pytest.mark.slow
@pytest.mark.parametrize("k", [4096, 8192, 16384])
def test_the_example_is_faster_than_what_is_there(k: int) -> None:
    def us(*directories: Path) -> float:
        program = mxcomp.compile(matmul(M, N, k), ukernel_dirs=directories)
        (found,) = (
            each for each in program.profile(*zeros(M, N, k), execute=False).dispatches if each.part == "matmul"
        )
        return found.us

    assert us(EXAMPLE.parent) < us()


def test_a_plugin_has_it(tmp_path: Path) -> None:
    emit_plugin(matmul(M, N, 1024), Options.make(ukernel_dirs=(EXAMPLE.parent,)), tmp_path, (), FLAGS)
    assert f"@{NAME}(" in (tmp_path / LINK).read_text()


FLAGS = get_target("gfx950").iree_flags

TILE = """
from mxcomp.layout.inner_tiles import inner_tiled_layout
from mxcomp.ukernels import multistage
from mxcomp.ukernels.family import Instance
from mxcomp.ukernels.waves import Waves

TILE = multistage.Tile(inner_tiled_layout(16, 14), benefit=100, min_m=256, waves=Waves(4, 2))
INSTANCES = [Instance(TILE, ("f4E2M1FN", "f4E2M1FN"), multistage.Multistage)]
"""


def read(folder: Path, **files: str) -> Registry:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    with ir.Context(), ir.Location.unknown():
        return Registry(get_target("gfx950"), [folder])


def test_a_tile_of_ones_own_of_a_kind_that_is_there(tmp_path: Path) -> None:
    name = "mx_f4E2M1FN_f4E2M1FN_f32_m256_n224_k512"
    ukernel = read(tmp_path, tile=TILE, _helper="raise SystemExit").ukernels[name]
    assert (ukernel.tile, ukernel.benefit) == ((256, 224, 512), 100)
    with ir.Context(), ir.Location.unknown():
        assert f"@{name}(" in ukernel.text()


HEAD = """
from __future__ import annotations
from iree.compiler import ir
from iree.compiler.dialects import arith, util
from mxcomp.layout import layout_entries
from mxcomp.layout.inner_tiles import inner_tiled_layout
from mxcomp.mlir import build
from mxcomp.ukernels import Kernel, builder
from mxcomp.ukernels.operands import argument_types

ELEMENTS = ("f4E2M1FN", "f4E2M1FN")
LAYOUT = inner_tiled_layout(1, 2)
RULE = {"archs": ["gfx950"], "types": [*ELEMENTS, "f8E8M0FNU", "f8E8M0FNU", "f32"], "workgroup_size": [64, 1, 1]}
RULE |= {"layout": layout_entries(LAYOUT)}
TYPES = lambda: argument_types(LAYOUT, ELEMENTS)
FOUR = lambda kind: build.tensor_type([4 if size < 0 else size for size in kind.shape], ELEMENTS[0])

def write(name, size=16, change=lambda types: types, result=lambda types: types[-1]):
    types = change(list(TYPES()))
    function = builder.function(name, types, result(types))
    block = function.operation.regions[0].blocks[0]
    with ir.InsertionPoint(block):
        builder.lds(size)
        util.ReturnOp([block.arguments[4]])
    return function.operation
"""
assert HEAD.count("\n") == 25
GOOD = 'INSTANCES = [Kernel("own", RULE, write)]'


def instances(rule: str = "RULE", write: str = "write") -> str:
    return f'INSTANCES = [Kernel("own", {rule}, {write})]'


OTHER = 'build.tensor_type((1, 2), "f32")'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = = 2", ":26: invalid syntax"),
        ("import no_such_module", ":26: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f():\n    return 1 / 0\n\n\nf()", ":27: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", ":26: SystemExit: 3"),
        ("", ": no kernel: expected INSTANCES, of mxcomp.ukernels.Kernel"),
        ("INSTANCES = []", ":26: no kernel: expected INSTANCES, of mxcomp.ukernels.Kernel"),
        ("INSTANCES = [write]", ":26: TypeError: <function write"),
        (instances("{}"), ":26: @own: mxcomp.ukernel lacks the entry 'types'"),
        (instances("None"), ":26: @own: mxcomp.ukernel must be a dictionary, got None"),
        (instances('RULE | {"benefits": 2}'), ":26: @own: unknown entries benefits: expected archs, types"),
        (instances('RULE | {"archs": "gfx950"}'), ":26: @own: archs must be a list of str, got 'gfx950'"),
        (
            instances('RULE | {"workgroup_size": [2048, 1, 1]}'),
            ":20: @own: workgroup_size has 2048 threads, expected at most 1024 on gfx950",
        ),
        (
            instances('RULE | {"workgroup_size": [100, 1, 1]}'),
            ":20: @own: workgroup_size has 100 threads, expected a multiple of 64 on gfx950",
        ),
        (
            instances('RULE | {"constraints": {"m": {"min": 64, "max": 32}}}'),
            ":26: @own: a constraint's min 64 is above its max 32",
        ),
        (
            instances('RULE | {"layout": RULE["layout"] | {"waves": 2}}'),
            ":26: @own: unknown entries of layout waves: expected intrinsic, intrinsics_m, ",
        ),
        (
            instances(write="lambda name: write(name, change=lambda types: [FOUR(types[0]), *types[1:]])"),
            ":20: @own: argument 0 (lhs) is tensor<1x1x4x1x4x4x16x32xf4E2M1FN>, expected tensor<1x1x?x1x4x4x16x32xf",
        ),
        (
            instances(write="lambda name: write(name, size=200000)"),
            ":20: @own: it takes 200000 bytes of LDS, expected at most 163840 on gfx950",
        ),
        (
            instances('RULE | {"types": ["f8E4M3FN", *RULE["types"][1:]]}'),
            ":20: @own: argument 0 (lhs) is tensor<1x1x?x1x4x4x16x32xf4E2M1FN>, expected tensor<1x1x?x1x4x",
        ),
        (
            instances(write=f"lambda name: write(name, change=lambda types: [*types[:4], {OTHER}])"),
            ":20: @own: argument 4 (acc) is tensor<1x2xf32>, expected tensor<1x1x1x2x4x16x4xf32>",
        ),
        (
            instances(write=f"lambda name: write(name, result=lambda types: {OTHER})"),
            ":24: @own: 'util.return' op type of return operand 0 ('tensor<1x1x1x2x4x16x4xf32>') doesn't match",
        ),
        (
            "def none(name):\n    return builder.function(name, TYPES(), TYPES()[0]).operation\n\n\n"
            + instances(write="none"),
            ":27: @own: empty block: expect at least a terminator",
        ),
        (instances(write="lambda name: write(name, size='many')"), ":23: @own: TypeError: "),
        (instances(write="lambda: 1"), ":26: @own: TypeError: "),
        (f'{GOOD} * 2', ": ukernel @own exists already in "),
    ],
    ids=lambda text: text[:60],
)  # fmt: skip
def test_a_bad_file_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UkernelError) as found:
        read(tmp_path, own=HEAD + text)
    assert str(found.value).startswith(f"{tmp_path / 'own.py'}{message}")
    assert "\n" not in str(found.value)


def test_what_fails_later_has_its_place(tmp_path: Path) -> None:
    """A kernel may be written otherwise when it is linked."""
    later = (
        "made = []\n\n\ndef once(name):\n    made.append(name)\n    assert len(made) < 2\n    return write(name)\n\n\n"
    )
    ukernel = read(tmp_path, own=HEAD + later + instances(write="once")).ukernels["own"]
    with ir.Context(), ir.Location.unknown(), pytest.raises(UkernelError) as found:
        ukernel.function()
    assert str(found.value) == f"{tmp_path / 'own.py'}:31: @own: AssertionError: "
