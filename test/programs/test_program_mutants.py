"""Each check of a fusion, and each rewrite of what IREE gets wrong, is needed: without it, a program is not right.

A mutant is a function replaced; its program is one of `test_fusions`, or one below.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import mx_operands
import numpy as np
import products
import pytest
import quantisers
from checking import check
from drawing import Drawing
from elementwise import sliced
from iree.compiler import ir
from iree.compiler.dialects import arith
from made import FP4, Make, floats, multiplied, program
from made import stored as drawn_operand
from mx_operands import Operand
from narrow import changed
from nodes import SCALE, Node
from steps_elementwise import integers
from test_fusions import ALONE, CHAINS

import mxcomp
from mxcomp.layout import LHS_SCALE
from mxcomp.matching import replacing, storage
from mxcomp.mlir import build, graph
from mxcomp.options import ON

whole = replacing.objection


def _without_place(value: Any, readings: Any, becomes: Any = None, at: Any = None, sizes_known: bool = False) -> str:
    """Whatever is read of a value is taken for what the fusion knows."""
    return whole(value, readings, becomes, None, sizes_known)


def _without_uses(value: Any, readings: Any, *args: Any, **options: Any) -> str:
    """Whatever else reads a value is taken for something that the fusion knows."""
    reason = whole(value, readings, *args, **options)
    return "" if "is also used by" in reason else reason


def _never(op: Any) -> bool:
    return False


def _nothing(*args: Any, **options: Any) -> None:
    """A pass that does nothing."""


def _without_view(source: Any, index: int, layout: Any) -> Any:
    """What a packed operand depends on, but for the type that its bytes are viewed as."""
    element = str(ir.RankedTensorType(source.type).element_type)
    kind = layout.packing(index, element if index < LHS_SCALE else None)
    return storage.storage(source), str(source.type), str(storage.source_and_map(source)[1]), kind


def _shifted(code: Any) -> Any:
    """A scale's code as the exponent of an f32, as IREE extends it."""
    i32 = ir.IntegerType.get_signless(32)
    bits = arith.ShLIOp(code, arith.ConstantOp(i32, 23).result).result
    return arith.BitcastOp(ir.F32Type.get(), bits).result


def _executable_renamed(executable: ir.Operation, call: ir.Operation) -> None:
    """The function in it keeps the name that IREE gives to others, too."""
    function = graph.symbol_name(executable)
    ir.SymbolTable.set_symbol_name(executable, f"mxcomp_{function}")
    call.attributes["entry_points"] = ir.ArrayAttr.get([ir.SymbolRefAttr.get([f"mxcomp_{function}", function])])


def _selected_fp6(drawing: Drawing) -> list[Node]:
    """Elements that are chosen between two tensors, in six bits, and quantised ones in front of it."""
    lhs = changed(drawing, drawn_operand(drawing, "m", 3, 1, "f6E2M3FN"))
    return [multiplied(drawing, lhs, drawn_operand(drawing, "n", 4, 1))]


def _narrow_steps(drawing: Drawing) -> list[Node]:
    """One block of one, with a step that says nothing."""
    left = mx_operands.draw(drawing, "bmki", {"b": 2, "m": 2, "k": 1}, "f8E5M2", tame=True)
    part = sliced(left.elements, [0, 1, 0, 0], [2, 1, 1, 32], [1, 1, 2, 1])
    scales = sliced(left.scales, [0, 1, 0], [2, 1, 1], [1, 1, 2])
    return [products.draw(drawing, Operand(part, scales, "bmki", "bmk"), drawn_operand(drawing, "n", 17, 1), "bmn")]


def _integers(drawing: Drawing) -> list[Node]:
    """Four bits of which a lane stores one."""
    return [integers(drawing, floats(drawing, 16, 34))]


def _truncated(drawing: Drawing) -> list[Node]:
    """Per-tensor quantisation by arith.truncf, as the first choice of its drawing is not."""
    drawing.dice.chance = lambda probability, feature="": feature == "truncf"  # type: ignore[method-assign]
    node = quantisers.narrowed(drawing, floats(drawing, 2, 32), FP4)
    return [Node(node.ir, node.data, FP4)]


def _scale_zero(drawing: Drawing) -> list[Node]:
    """Scales of 2^-127 against large ones, decoded on their own."""
    lhs, rhs = drawn_operand(drawing, "m", 2, 1, "f6E2M3FN"), drawn_operand(drawing, "n", 3, 1)
    sides = []
    for side, code in ((lhs, 0), (rhs, 232)):
        codes = np.full(side.scales.shape, code, np.uint8)
        value = build.bitcast(drawing.value(codes, "i8"), build.tensor_type(codes.shape, SCALE))
        sides.append(Operand(side.elements, Node(value, codes, SCALE), side.axes, side.scale_axes))
    return [multiplied(drawing, *sides)]


Mutant = tuple[str, str, Callable[..., Any], Make, dict[str, Any]]
MUTANTS: dict[str, Mutant] = {
    "subscripts of a replaced result": ("matching.replacing", "objection", _without_place, CHAINS["transposed"][0], {}),
    "uses of a replaced result": ("matching.replacing", "objection", _without_uses, CHAINS["returned as well"][0], {}),
    "uses of what is computed from it": ("matching.replacing", "objection", _without_uses, CHAINS["both sides"][0], {}),
    "results that are written over": (
        "mlir.linalg_ops",
        "reads_init",
        lambda op: False,
        ALONE["producer writes over"][0],
        {},
    ),
    "views of one storage": ("packing.packer", "_identity", _without_view, ALONE["two views"][0], {}),
    "constants": ("passes.defer_constants", "run", _nothing, ALONE["constant product"][0], {}),
    "codes": ("passes.workarounds.unpack_elements", "run", _nothing, _integers, {}),
    "six-bit codes": ("passes.workarounds.unpack_elements", "run", _nothing, _selected_fp6, {}),
    "conversions": (
        "passes.workarounds.legalise_truncations",
        "_with_scale_one",
        lambda op: op.clone().results[0],
        _truncated,
        {},
    ),
    "steps of slices": ("passes.workarounds.legalise_steps", "run", _nothing, _narrow_steps, {}),
    "extracts from slices": (
        "passes.workarounds.legalise_lookups",
        "run",
        _nothing,
        ALONE["sliced scales"][0],
        {"data_tiling": False},
    ),
    "slices behind": (
        "passes.workarounds.keep_slices_behind",
        "run",
        _nothing,
        ALONE["slice behind"][0],
        {"ukernels": "none"},
    ),
    "slices of what is loaded": (
        "passes.workarounds.keep_reads_behind",
        "run",
        _nothing,
        ALONE["slice of values"][0],
        {},
    ),
    "slices of codes": ("passes.workarounds.keep_reads_behind", "run", _nothing, ALONE["slice of codes"][0], {}),
    "codes that are gathered": (
        "passes.workarounds.keep_reads_behind",
        "run",
        _nothing,
        ALONE["gathered codes"][0],
        {},
    ),
    "names of kernels": ("passes.outline", "_rename", _executable_renamed, ALONE["same kernels"][0], {}),
    "assumptions of sizes": ("passes.workarounds.assume_operands", "run", _nothing, ALONE["branch"][0], {}),
    "scale code 0": ("codes.decode", "_scale", _shifted, _scale_zero, {"ukernels": "none"}),
}
"""By what is not looked at any more: module, function, what it becomes, a program, options."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, function, mutant, make, options = MUTANTS[name]
    compile = mxcomp.compile  # fuses also where it takes longer
    monkeypatch.setattr(mxcomp, "compile", lambda *args, **given: compile(*args, **given | {"fuse_quantisers": ON}))
    drawn = program(make, **options)
    assert check(drawn).kind == "right"
    home = importlib.import_module(f"mxcomp.{module}")
    original = getattr(home, function)
    for user in [m for key, m in sys.modules.items() if key.startswith("mxcomp.")]:
        if getattr(user, function, None) is original:
            monkeypatch.setattr(user, function, mutant)
    found = check(drawn)
    assert found.kind != "right", f"without {function} nothing changes"
    assert "TypeError" not in found.message, "the mutant is not called as the function is now"
