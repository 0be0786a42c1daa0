"""Builds functions that quantise one block in the registers of a lane, which quantising ukernels call.

    func.func @quantise(%words: vector<16xi32>) -> (vector<16xi8>, i8) {
      %x = vector.bitcast %words : vector<16xi32> to vector<32xbf16>
      %amax = …                                   the model's reduction, element by element
      %scale = …                                  the model's arithmetic, once
      %q = rocdl.cvt.scalef32.pk.fp4.bf16 …       for the arith.scaling_truncf of elements
      …
    }

The arithmetic is that of the recognised producer (`mxcomp.matching.quantiser`), operation by operation on vectors, so
results equal those of quantising elsewhere, bit for bit. The function is text in an attribute of its matmul.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith, func, rocdl, vector

from mxcomp.formats import ElementFormat, element_format
from mxcomp.layout.inner_tiles import BLOCK, MFMA
from mxcomp.matching.activations import CONVERTS, Activations
from mxcomp.matching.norms import Norm
from mxcomp.matching.quantiser import Compute, Node, Read
from mxcomp.mlir import build, graph
from mxcomp.mlir.inline import constant, inline, insert
from mxcomp.packing import rounding
from mxcomp.ukernels.brought import ACTIVATE, BLOCKS_IN_ROW, MULTIPLE, NORMALISE, QUANTISE, SUM
from mxcomp.ukernels.conversions import converted, slice_of
from mxcomp.ukernels.softmax import swapped

Padding: TypeAlias = Sequence[tuple[int, int | None]]
"""The multiples that rows are padded to, and the most rows for which each is, ascending; None: any."""

QUANTISER = "mxcomp.quantiser"
"""The attribute of a matmul with the text of a module that contains the function."""

_PART = BLOCK // 4
"""The number of activations of which a lane makes what is quantised, where lanes share blocks (`ukernels/once.py`)."""


def text(activations: Activations, blocks: int, in_order: bool = False, padding: Padding = ()) -> str:
    """Returns a module with the function that quantises like a producer, and @blocks, the blocks in a row.

    Hidden activations are computed by a function of their own, @activate; a block of them comes in words of f32. So are
    normalised ones, @normalise, from sums of rows, @sum0 and so on. With `in_order` elements are. @multiple has what
    rows are padded to a multiple of, if that is given.
    """
    hidden = activations.hidden
    with functions(blocks) as module:
        if padding:
            _multiple(padding)
        if hidden is not None:
            _activate(activations, hidden)
        if activations.norm is not None:
            _normalise(activations.norm)
        _quantise(activations, BLOCK if hidden is not None else BLOCK * activations.bits // _WORD_BITS, in_order)
    return str(module)


def texts(operands: Sequence[Activations]) -> str:
    """Returns a module with functions @quantise0, … of operands, which return elements in order."""
    with functions() as module:
        for number, each in enumerate(operands):
            _quantise(each, BLOCK * each.bits // _WORD_BITS, True, f"{QUANTISE}{number}")
    return str(module)


def norm_text(norm: Norm) -> str:
    """Returns a module with the functions @sum0 and so on, and @normalise, of a norm."""
    with functions() as module:
        _normalise(norm)
    return str(module)


def hidden_text(activations: Activations, hidden: Compute, pair: Sequence[ir.Value]) -> str:
    """Returns a module with the function that quantises activations, and @activate, which makes a lane's part of them.

    They are `hidden`, of the results of gate and up. As in tiles of these, what rounding loses may be approximated.
    """
    given = [ir.VectorType.get([_PART], build.element(value)) for value in pair]
    with functions() as module:
        with body_of(ACTIVATE, given, [_words(_PART * activations.bits // _WORD_BITS)]) as (gates, ups):
            lane = _Lane(dict(zip(pair, (gates, ups), strict=True)), _PART, may_approximate=True)
            made = lane.value(hidden)
            func.ReturnOp([vector.BitCastOp(_words(_PART * activations.bits // _WORD_BITS), made).result])
        _quantise(activations, BLOCK * activations.bits // _WORD_BITS, True)
    return str(module)


_WORD_BITS = 32


def _quantise(activations: Activations, words: int, in_order: bool, name: str = QUANTISE) -> None:
    """Builds the function that returns a block and its scale: elements in order, or as the MFMA takes them from
    lanes."""
    producer, hidden = activations.producer, activations.hidden
    assert producer is not None
    fmt = element_format(str(build.element(producer.elements.op.results[0])))
    i8 = ir.IntegerType.get_signless(8)
    stored = ir.VectorType.get([MFMA.lane_bytes(fmt.mlir_type)], i8)
    with body_of(name, [_words(words)], [stored, i8]) as (given,):
        source = activations.source if hidden is None else hidden.op.results[0]
        lane = _Lane({source: _values(given, build.element(source), BLOCK)})
        elements, scale = (lane.value(node) for node in producer.nodes)
        moved = elements if in_order else _in_mfma_lanes(elements, fmt)
        func.ReturnOp([vector.BitCastOp(stored, moved).result, arith.BitcastOp(i8, scale).result])


def _activate(activations: Activations, hidden: Compute) -> None:
    """Builds the function that computes a lane's part of a block of hidden activations, as f32, from gates and ups."""
    pair = activations.pair or ()
    count = _PART * len(pair)
    with body_of(ACTIVATE, [_words(count)], [_words(_PART)]) as (given,):
        x = vector.BitCastOp(ir.VectorType.get([count], activations.type), given).result
        turns = (ir.DenseI64ArrayAttr.get(range(first, count, len(pair))) for first in range(len(pair)))
        both = {value: vector.ShuffleOp(x, x, turn).result for value, turn in zip(pair, turns, strict=True)}
        lane = _Lane(both, _PART)
        made, wide = lane.value(hidden), ir.VectorType.get([_PART], ir.F32Type.get())
        made = made if made.type == wide else arith.ExtFOp(wide, made).result
        func.ReturnOp([vector.BitCastOp(_words(_PART), made).result])


def _normalise(norm: Norm) -> None:
    """Builds the functions that add up a lane's part of a block for each sum of a norm, and that normalise it."""
    kinds = [build.element(value) for value in norm.operands]
    taken = [_words(_PART * kind.width // _WORD_BITS) for kind in kinds]
    f32 = ir.F32Type.get()

    def lane(given: Sequence[ir.Value]) -> _Lane:
        values = [_values(words, kind, _PART) for words, kind in zip(given, kinds, strict=False)]
        known = dict(zip(norm.operands, values, strict=True))
        totals = zip(norm.sums, given[len(kinds) :], strict=False)
        return _Lane(known | {each.op.results[0]: total for each, total in totals}, _PART)

    for number, each in enumerate(norm.sums):
        with body_of(f"{SUM}{number}", [*taken, *[f32] * number], [f32]) as given:
            func.ReturnOp([lane(given).sum(each)])
    with body_of(NORMALISE, [*taken, *[f32] * len(norm.sums)], [taken[0]]) as given:
        func.ReturnOp([vector.BitCastOp(taken[0], lane(given).value(norm.result)).result])


def _values(words: ir.Value, kind: ir.Type, count: int) -> ir.Value:
    """Returns so many values of a type from words; values that were widened to f32 are narrowed again."""
    plain = ir.VectorType.get([count], kind)
    if ir.VectorType(words.type).shape != [count] or isinstance(kind, ir.F32Type):
        return vector.BitCastOp(plain, words).result
    wide = vector.BitCastOp(ir.VectorType.get([count], ir.F32Type.get()), words).result
    return arith.TruncFOp(plain, wide).result


def _words(count: int) -> ir.Type:
    return ir.VectorType.get([count], ir.IntegerType.get_signless(_WORD_BITS))


@contextmanager
def functions(blocks: int | None = None) -> Iterator[ir.Module]:
    """Inserts functions into a new module, whose last one is @blocks where that is known."""
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        yield module
        if blocks is not None:
            with body_of(BLOCKS_IN_ROW, [], [ir.IndexType.get()]):
                func.ReturnOp([build.constant_index(blocks)])


def _multiple(padding: Padding) -> None:
    """Builds the function that returns what so many rows are padded to a multiple of."""
    with body_of(MULTIPLE, [ir.IndexType.get()], [ir.IndexType.get()]) as (rows,):
        multiples = [(most, build.constant_index(multiple)) for multiple, most in padding]
        func.ReturnOp([build.for_at_most(multiples, rows)])


@contextmanager
def body_of(name: str, taken: Sequence[ir.Type], given: Sequence[ir.Type]) -> Iterator[Sequence[ir.Value]]:
    """Inserts at the end of a new function, and yields its arguments."""
    block = func.FuncOp(name, ir.FunctionType.get(list(taken), list(given))).add_entry_block()
    with ir.InsertionPoint(block):
        yield list(block.arguments)


class _Lane:
    """Builds nodes at the insertion point, each once: values that differ within a block are vectors, all others
    scalars.

    Elements are made in registers (`conversions`), and from activations of 16 bits as they are where their f32 would
    be taken: an extension changes no value, nor does it whether it comes before or after a choice of zero.
    """

    def __init__(self, given: Mapping[ir.Value, ir.Value], width: int = BLOCK, may_approximate: bool = False) -> None:
        self._given, self._width, self._may_approximate = given, width, may_approximate
        self._built: dict[Node, ir.Value] = {}
        self._narrow: dict[ir.Value, ir.Value] = {}

    def value(self, node: Node) -> ir.Value:
        value = node.value if isinstance(node, Read) else node.op.results[0]
        if value in self._given:
            return self._given[value]
        assert isinstance(node, Compute)
        if node not in self._built:
            self._built[node] = self._compute(node)
        return self._built[node]

    def _compute(self, node: Compute) -> ir.Value:
        operands = [self.value(operand) for operand in node.operands]
        if node.start is None:
            return inline(node.op, operands, self._widened)
        result = constant(node.start.operands[0])
        if _is_largest_magnitude(node.op) and str(ir.VectorType(operands[0].type).element_type) == "bf16":
            return arith.MaxUIOp(_largest_magnitude(operands[0]), result).result
        for i in range(BLOCK):
            result = inline(node.op, [*(_element(operand, i) for operand in operands), result])
        return result

    def sum(self, node: Compute) -> ir.Value:
        """Returns the sum of what a reduction adds up of a vector."""
        operands = [self.value(operand) for operand in node.operands]
        none = vector.BroadcastOp(ir.VectorType.get([self._width], ir.F32Type.get()), _zero()).result
        parts = inline(node.op, [*operands, none], self._widened)
        each = [vector.ExtractOp(parts, [], [i]).result for i in range(self._width)]
        while len(each) > 1:
            each = [arith.AddFOp(*pair).result for pair in zip(each[::2], each[1::2], strict=True)]
        return each[0]

    def _widened(self, op: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
        """Returns an operation for all elements of a block, if one of its operands is a vector. See `inline`."""
        if not any(isinstance(operand.type, ir.VectorType) for operand in operands):
            return None
        if op.name == CONVERTS:
            x, scale = operands
            return converted(self._narrow.get(x, x), scale, str(op.results[0].type))
        wide = [self._wide(operand, op.name == _CHOOSES and i == 0) for i, operand in enumerate(operands)]
        result = ir.VectorType.get([self._width], op.results[0].type)
        attributes = {name: op.attributes[name] for name in op.attributes}
        if self._may_approximate and rounding.is_lost(op):
            attributes[rounding.FASTMATH] = rounding.fastmath()
        value = ir.Operation.create(op.name, results=[result], operands=wide, attributes=attributes).results[0]
        if op.name == "arith.extf" and str(result.element_type) == "f32":
            self._narrow[value] = operands[0]
        elif op.name == _CHOOSES and operands[1] in self._narrow and _is_zero(operands[2]):
            self._narrow[value] = _or_zero(operands[0], self._narrow[operands[1]])
        return value

    def _wide(self, value: ir.Value, is_condition: bool) -> ir.Value:
        """Returns a vector; a scalar that selects between vectors is not broadcast."""
        if isinstance(value.type, ir.VectorType) or is_condition:
            return value
        return vector.BroadcastOp(ir.VectorType.get([self._width], value.type), value).result


def _zero() -> ir.Value:
    return arith.ConstantOp(ir.F32Type.get(), 0.0).result


_CHOOSES = "arith.select"
_LARGEST_MAGNITUDE = ["arith.extf", "math.absf", "arith.bitcast", "arith.maxui", "linalg.yield"]


def _is_largest_magnitude(op: ir.Operation) -> bool:
    """Returns whether a reduction takes the largest of the bits of |x|, as f32 in i32."""
    *inner, end = (view.operation for view in op.regions[0].blocks[0].operations)
    if [each.name for each in (*inner, end)] != _LARGEST_MAGNITUDE or str(inner[2].results[0].type) != "i32":
        return False
    x, largest = op.regions[0].blocks[0].arguments
    chain = [x, *(each.results[0] for each in inner)]
    return all(chain[i] in each.operands for i, each in enumerate((*inner, end))) and largest in inner[-1].operands


def _largest_magnitude(x: ir.Value) -> ir.Value:
    """Returns the largest magnitude of a vector of bf16, whose bits are the upper half of f32: two at a time."""
    i16, i32 = (ir.IntegerType.get_signless(bits) for bits in (16, 32))
    words = ir.VectorType.get([BLOCK // 2], i32)
    mask = ir.DenseElementsAttr.get_splat(words, ir.IntegerAttr.get(i32, 0x7FFF7FFF))
    magnitudes = arith.AndIOp(vector.BitCastOp(words, x).result, arith.ConstantOp(words, mask).result).result
    pair = ir.VectorType.get([2], i16)
    first, *others = (vector.BitCastOp(pair, slice_of(magnitudes, i, 1)).result for i in range(BLOCK // 2))
    for other in others:
        first = arith.MaxUIOp(first, other).result
    largest = arith.MaxUIOp(*(vector.ExtractOp(first, [], [i]).result for i in range(2))).result
    bits = arith.ExtUIOp(i32, largest).result
    return arith.ShLIOp(bits, arith.ConstantOp(i32, 16).result).result


def _or_zero(condition: ir.Value, x: ir.Value) -> ir.Value:
    """Returns a vector of 16-bit values or zeros, selected two at a time."""
    words = ir.VectorType.get([ir.VectorType(x.type).shape[0] // 2], ir.IntegerType.get_signless(32))
    zero = arith.ConstantOp(words, ir.DenseElementsAttr.get_splat(words, ir.IntegerAttr.get(words.element_type, 0)))
    chosen = arith.SelectOp(condition, vector.BitCastOp(words, x).result, zero.result).result
    return vector.BitCastOp(x.type, chosen).result


def _is_zero(value: ir.Value) -> bool:
    """Returns whether a scalar is the constant +0.0."""
    return str(graph.real(value)) == "0.0"


def _element(value: ir.Value, at: int) -> ir.Value:
    """Returns an element of a vector; a scalar is returned itself."""
    if not isinstance(value.type, ir.VectorType):
        return value
    return vector.ExtractOp(value, [], [at]).result


_HALVES, _WORD_BYTES = 2, 4


def _in_mfma_lanes(elements: ir.Value, fmt: ElementFormat) -> ir.Value:
    """Moves a block's elements, in registers, to the lane in which the MFMA takes them.

    Those of 8 bits are taken in two halves. Of a block b (lanes 16b to 16b + 15 hold one row of it each) with halves
    b.0 and b.1, the MFMA takes 0.0, 0.1, 1.0, 1.1 as first halves of lanes, 2.0 … 3.1 as the second ones:

        first halves  0.0 1.0 2.0 3.0  ─ rows of 16 ─►  0.0 0.1 2.0 2.1  ─ rows of 32 ─►  0.0 0.1 1.0 1.1
        second halves 0.1 1.1 2.1 3.1                   1.0 1.1 3.0 3.1                   2.0 2.1 3.0 3.1
    """
    if MFMA.holds_blocks(fmt.mlir_type):
        return elements
    half = MFMA.lane_bytes(fmt.mlir_type) // (_WORD_BYTES * _HALVES)
    given = [vector.ExtractOp(elements, [], [i]).result for i in range(half * _HALVES)]
    first, second = given[:half], given[half:]
    for swap in (rocdl.Permlane16SwapOp, rocdl.Permlane32SwapOp):
        for i in range(half):
            first[i], second[i] = swapped(swap, first[i], second[i])
    return vector.FromElementsOp(elements.type, [*first, *second]).result


def completed(ukernel: ir.Operation, user: ir.Operation) -> ir.Operation:
    """Returns a ukernel with the function that `user` brings in place of its calls; unchanged if it brings none."""
    brought = user.attributes.get(QUANTISER)
    return ukernel if brought is None else insert(ukernel, ir.StringAttr(brought).value)


def completed_text(ukernel: ir.Operation, functions: str) -> str:
    """Returns the text of a module of a ukernel with `functions`, a module's text, in place of its calls."""
    made = ir.Module.create()
    made.body.append(insert(ukernel, functions))
    return str(made)
