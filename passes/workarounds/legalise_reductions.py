"""mxcomp-legalise-reductions: rewrites reductions of integers that IREE miscompiles on a wave.

Where the 64 lanes of a wave reduce together, IREE starts a signed maximum of up to 32 bits from 0, a signed minimum
from −1, an unsigned maximum of 64 bits from the least signed number, an unsigned minimum from the greatest, and a
bitwise "and" from 1: none is what it should be, and results are wrong without a word. With 8 bits its compiler ends
the process ("Do not know how to promote this operator!").

Another operation on codes of the numbers means the same: signed and unsigned ones with the sign flipped, "and" and
"or" with all bits flipped. Numbers below 16 bits become 32 bits wide.

Before:

    %r = linalg.generic {…} ins(%x : tensor<4x256xi32>) outs(%least : tensor<4xi32>) {
    ^bb0(%in: i32, %out: i32):
      %m = arith.maxsi %in, %out : i32
      linalg.yield %m : i32
    } -> tensor<4xi32>

After:

    %codes = linalg.generic {…} ins(%x : tensor<4x256xi32>) outs(%zeros : tensor<4xi32>) {
    ^bb0(%in: i32, %out: i32):
      %c = arith.xori %in, %c-2147483648 : i32
      %m = arith.maxui %c, %out : i32
      linalg.yield %m : i32
    } -> tensor<4xi32>
    %r = linalg.generic {…} ins(%codes : tensor<4xi32>) …           (arith.xori of each with -2147483648)

Reductions of up to 32 numbers, an MX block, stay: no wave shares them, and quantisers are made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.formats import MX_BLOCK
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import steps_reduced

_REDUCTIONS = ("linalg.generic", "linalg.reduce")
_LEAST_WIDTH, _WIDE = 16, 32


class _Form(NamedTuple):
    """An operation that combines codes, and whether codes have all bits flipped, the sign only, or none."""

    combiner: str
    flipped: str


_UP_TO_32_BITS = {"arith.maxsi": _Form("arith.maxui", "sign"), "arith.minsi": _Form("arith.minui", "sign")}
_MORE_BITS = {"arith.maxui": _Form("arith.maxsi", "sign"), "arith.minui": _Form("arith.minsi", "sign")}
_ANY_BITS = {"arith.andi": _Form("arith.ori", "all")}
_RIGHT = ("addi", "muli", "ori", "xori", "maxsi", "minsi", "maxui", "minui")
_SIGNED = ("arith.maxsi", "arith.minsi")


@dataclass(frozen=True)
class _Code:
    """The encoding of numbers of a type while they are reduced."""

    number: ir.IntegerType
    signed: bool
    form: _Form

    @property
    def kind(self) -> ir.IntegerType:
        return self.number if self.number.width >= _LEAST_WIDTH else ir.IntegerType.get_signless(_WIDE)

    def of(self, value: ir.Value) -> ir.Value:
        """Returns the code of a number, at the insertion point."""
        if self.kind != self.number:
            value = (arith.ExtSIOp if self.signed else arith.ExtUIOp)(self.kind, value).result
        return self._flipped(value)

    def number_of(self, code: ir.Value) -> ir.Value:
        """Returns the number of a code, at the insertion point."""
        value = self._flipped(code)
        return value if self.kind == self.number else arith.TruncIOp(self.number, value).result

    def _flipped(self, value: ir.Value) -> ir.Value:
        if not self.form.flipped:
            return value
        mask = -1 if self.form.flipped == "all" else -(1 << (self.kind.width - 1))
        return arith.XOrIOp(value, arith.ConstantOp(self.kind, mask).result).result


def run(module: ir.Operation) -> None:
    """Rewrites reductions of integers below `module`."""
    for op in [op for op in graph.walk(module, bodies=False) if op.name in _REDUCTIONS and may_be_shared(op)]:
        for position in range(len(op.results)):
            _legalise(op, position)


def may_be_shared(op: ir.Operation) -> bool:
    """Returns whether so many numbers may be reduced by a whole wave."""
    steps = steps_reduced(op)
    return steps is None or steps > MX_BLOCK


def _legalise(op: ir.Operation, position: int) -> None:
    """Rewrites the result at a position, if a single operation combines its numbers."""
    block, operand = op.regions[0].blocks[0], len(op.operands) - len(op.results) + position
    out, returned = block.arguments[operand], list(block.operations)[-1]
    combiner = graph.producer(returned.operands[position])
    code = None if combiner is None else _code(combiner)
    if combiner is None or code is None:
        return
    others = [value for value in combiner.operands if value != out]
    if len(others) != 1 or len(list(out.uses)) != 1 or len(list(combiner.results[0].uses)) != 1:
        return  # the numbers have another use
    with op.location:
        with ir.InsertionPoint(combiner):
            out.set_type(code.kind)
            operands = [out, code.of(others[0])]
            returned.operands[position] = ir.Operation.create(code.form.combiner, [code.kind], operands).result
        combiner.erase()
        result, init = op.results[position], op.operands[operand]
        numbers = ir.RankedTensorType(result.type)
        codes = ir.RankedTensorType.get(numbers.shape, code.kind)
        with ir.InsertionPoint(op):
            op.operands[operand] = _coded(init, codes, code)
            sizes = build.dynamic_sizes(init)
        result.set_type(codes)
        with ir.InsertionPoint.after(op):
            decoded = build.elementwise(numbers, [result], code.number_of, sizes)
        result.replace_all_uses_except(decoded, graph.producer(decoded))


def _code(combiner: ir.Operation) -> _Code | None:
    """Returns the encoding for a reduction; None if IREE compiles it correctly, or it is of another form."""
    kind = combiner.results[0].type
    if not isinstance(kind, ir.IntegerType) or kind.width == 1 or len(combiner.operands) != 2:
        return None
    wrong = _ANY_BITS | (_UP_TO_32_BITS if kind.width <= _WIDE else _MORE_BITS)
    known = combiner.name in {f"arith.{name}" for name in _RIGHT}
    form = wrong.get(combiner.name) or (_Form(combiner.name, "") if known and kind.width < _LEAST_WIDTH else None)
    return form and _Code(kind, combiner.name in _SIGNED, form)


def _coded(init: ir.Value, codes: ir.RankedTensorType, code: _Code) -> ir.Value:
    """Returns the initial value of a reduction, as codes."""
    if (fill := graph.producer(init, "linalg.fill")) is not None:
        return build.filled(code.of(fill.operands[0]), codes, build.dynamic_sizes(init))
    return build.elementwise(codes, [init], code.of)
