"""Activations that a ukernel can quantise in registers, block by block, as the LHS of a scaled matmul.

Hidden activations of experts are computed from gate and up (`mxcomp.matching.gates`) in the ukernel, too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable
from dataclasses import dataclass, replace

from iree.compiler import ir

from mxcomp.formats import element_format
from mxcomp.layout import LHS, LHS_SCALE
from mxcomp.layout.inner_tiles import BLOCK
from mxcomp.layout.problem import Problem
from mxcomp.matching import blocks, gates, norms, offers, quantiser
from mxcomp.matching.decision import VERSIONS, decision_of
from mxcomp.matching.elements import Index
from mxcomp.matching.norms import Norm
from mxcomp.matching.quantiser import TRUNCATIONS, Compute, Node, Producer, Read, computed, reads
from mxcomp.mlir import build, graph
from mxcomp.mlir.attributes import PACKS
from mxcomp.mlir.build import is_sub_byte
from mxcomp.mlir.linalg_ops import is_elementwise, yielded
from mxcomp.ukernels import weight_only
from mxcomp.ukernels.attention_prefill import Prefill
from mxcomp.ukernels.conversions import CONVERSIONS, WHOLE
from mxcomp.ukernels.quantising import SOURCE_BITS


@dataclass(frozen=True)
class Activations:
    """The LHS of a matmul is quantised by `producer` from the tensor `source`. Every 32 row-major elements of it are a
    block.

    Without a producer it is multiplied as it is. `sizes` are those of the source, which may be hidden from its type.
    With `made` the placeholders of dispatches that may quantise and pack what they make, which none else reads: one,
    or versions of which `choice` takes one. With `batches` these make rows of so many head by head: in no order.
    With `norm` a dispatch of its own makes the source, which nothing else reads, and which a kernel may do as well.
    With `pair` the producer reads these, gate and up, which the source has in turns: each 64 elements are a block. It
    makes `hidden` activations of each two of them, and all else of these.
    With `shared` the only row of the source is each row of each matrix of a batch: that of the experts of a token.
    """

    producer: Producer | None
    source: ir.Value
    sizes: tuple[int | None, ...]
    pair: tuple[ir.Value, ir.Value] | None = None
    hidden: Compute | None = None
    norm: Norm | None = None
    made: tuple[ir.Operation, ...] = ()
    choice: ir.Operation | None = None
    batches: int = 0
    shared: bool = False

    @property
    def type(self) -> ir.Type:
        """The type of an element."""
        return ir.RankedTensorType(self.source.type).element_type

    def reading(self, source: ir.Value) -> Activations:
        """Returns the same of another tensor."""
        return replace(self, source=source, sizes=tuple(build.static_sizes(source)))

    @property
    def bits(self) -> int:
        return SOURCE_BITS[str(self.type)] * len(self.pair or (self.source,))


def find(elements: ir.Value, scales: ir.Value, problem: Problem, may_be_by_head: bool = False) -> Activations | str:
    """Returns the activations that the LHS of a problem is quantised from, or why a kernel cannot quantise them.

    The reason is "" where they are stored, and nothing is quantised. What makes them may do so by head, if it is asked.
    """
    if problem.types[LHS] == weight_only.ACTIVATIONS:
        return Activations(None, elements, tuple(build.static_sizes(elements)))
    if problem.batch and (pair := gates.pair_of(elements, scales)) is not None:
        return _hidden(*pair, problem)
    if problem.batch and (of := blocks.find(elements, scales)) and build.static_sizes(of.elements)[0] == 1:
        found = find(of.elements, of.scales, replace(problem, m=1, batch=()))
        return found if isinstance(found, str) else replace(found, norm=None, made=(), choice=None, shared=True)
    producer = quantiser.find(elements, scales)
    if producer is None:
        return ""
    if problem.batch or problem.k is None:
        return "it has a batch, or a dynamic K"
    if reason := _unmade(producer, problem):
        return reason
    read, *others = reads(producer.nodes)
    is_mixed = bool(others) or captures(producer.nodes)
    narrowed = _narrowed(elements, scales, producer, _is_epilogue) if is_mixed or _is_result(read, producer) else None
    if narrowed is not None and (is_mixed or _bits(narrowed) < _bits(producer)):
        producer, read, others = narrowed, *reads(narrowed.nodes), []
    if others:
        return f"LHS is computed from {1 + len(others)} operands: expected one"
    if captures(producer.nodes):
        return "LHS is computed with a value that is no operand"
    found = Activations(producer, read.value, tuple(_sizes(read)))
    if str(found.type) not in SOURCE_BITS:
        return f"activations are {found.type}: expected {', '.join(SOURCE_BITS)}"
    found = _made(found)
    if may_be_by_head and (batches := _batches(read, found, problem.m, problem.k)):
        return replace(found, batches=batches)
    if not _is_row_major(read, problem.m, problem.k):
        return "activations are not read row by row"
    return replace(found, norm=_norm(found))


def of_rows(elements: ir.Value, scales: ir.Value) -> Activations | None:
    """Returns the rows that elements [rows, blocks, 32] and scales are quantised from, nearest to the quantiser.

    None where a lane cannot quantise a block of them.
    """
    sizes = build.static_sizes(elements)
    if None in sizes or sizes[-1] != BLOCK or sizes[:-1] != build.static_sizes(scales):
        return None
    rows, columns = sizes[0] or 0, (sizes[1] or 0) * BLOCK
    found = _nearest(elements, scales, CONVERSIONS, lambda op: True, lambda read: _is_row_major(read, rows, columns))
    return found[0] if found else None


def of_blocks(elements: ir.Value, scales: ir.Value) -> tuple[Activations, Read] | None:
    """Returns what elements [rows, blocks, 32] and scales are quantised from, wherever it is read.

    Operations that only move elements are no part of it, unless others are behind them.
    """

    def is_source(op: ir.Operation) -> bool:
        return not isinstance(yielded(op), ir.BlockArgument)

    return _nearest(elements, scales, {*CONVERSIONS, *WHOLE}, is_source, lambda read: True)


def _nearest(
    elements: ir.Value, scales: ir.Value, conversions: Container[tuple[str, str]],
    is_source: Callable[[ir.Operation], bool], fits: Callable[[Read], bool],
) -> tuple[Activations, Read] | None:  # fmt: skip
    """Returns the narrowest single tensor that a lane can quantise elements from, the nearest of several, and how."""
    whole, kind, found = quantiser.find(elements, scales), str(build.element(elements)), []
    if whole is None or not _converts(whole.elements):
        return None
    for each in filter(None, (_narrowed(elements, scales, whole, is_source), whole)):
        read, *others = reads(each.nodes)
        is_alone = not others and not captures(each.nodes)
        if is_alone and (kind, str(build.element(read.value))) in conversions and fits(read):
            found.append((Activations(each, read.value, tuple(_sizes(read))), read))
    return min(found, key=lambda pair: pair[0].bits, default=None)


def _norm(found: Activations) -> Norm | None:
    """Returns the norm in front of activations, if a kernel can compute it and they are nothing else's."""
    norm, producer = norms.of(found.source), found.producer
    if norm is None or producer is None or not norm.sums:
        return None
    rows, *vectors = (str(build.element(value)) for value in norm.operands)
    if rows not in SOURCE_BITS or SOURCE_BITS[rows] != found.bits or any(each not in SOURCE_BITS for each in vectors):
        return None
    return norm if _is_read_alone(found.source, producer) else None


def _made(found: Activations) -> Activations:
    """Returns activations with the placeholders in front of them, if their kernels can quantise and pack them."""
    source = graph.look_through(found.source, graph.VIEWS)
    op = graph.producer(source)
    choice = op if op is not None and VERSIONS in op.attributes else None
    regions = [graph.producer(each) for each in list(choice.operands)[1:]] if choice else [op]
    placeholders = [
        each for region in regions if region is not None and region.name == "flow.dispatch.region"
        for each in graph.walk(region) if PACKS in each.attributes
    ]  # fmt: skip
    is_made = len(placeholders) == len(regions) and _is_read_alone(source, found.producer)
    return replace(found, made=tuple(placeholders), choice=choice) if is_made else found


def _is_read_alone(source: ir.Value, producer: Producer | None) -> bool:
    """Returns whether nothing reads elements of a value but what quantises activations."""
    own = {reading.user for reading in producer.readings} if producer else set()
    return all(user in own or user.name == "tensor.dim" for user in graph.readers(source, graph.VIEWS))


def _hidden(producer: Producer, pair: tuple[ir.Value, ir.Value], problem: Problem) -> Activations | str:
    """Returns hidden activations of a batch, computed from gate and up; or why a kernel cannot quantise them."""
    source = gates.both(pair)
    if reason := _unmade(producer, problem):
        return reason
    if producer.reads() != set(pair) or captures(producer.nodes):
        return gates.NOT_ALONE
    if str(build.element(source)) != "f32":
        return f"gate and up are {build.element(source)}: expected f32"
    rows = None if problem.m is None else problem.m * problem.matrices
    if problem.k is None or not all(_is_row_major(read, rows, problem.k) for read in reads(producer.nodes)):
        return "gate and up are not read row by row"
    hidden = next(filter(lambda node: _goes_through(producer, node), computed([producer.elements])), None)
    if hidden is None:
        return "what is quantised is no activation of gate and up"
    return Activations(producer, source, tuple(build.static_sizes(source)), pair, hidden)


def _goes_through(producer: Producer, node: Compute) -> bool:
    """Returns whether a producer computes everything from a single tensor, element by element."""

    def is_past(each: Node) -> bool:
        return isinstance(each, Compute) and (each.op == node.op or all(map(is_past, each.operands)))

    is_float = str(build.element(node.op.results[0])) in SOURCE_BITS
    return node.inside and node.start is None and is_float and all(map(is_past, producer.nodes))


def _unmade(producer: Producer, problem: Problem) -> str:
    """Returns why elements cannot be computed in registers; "" if they can."""
    if not element_format(problem.types[LHS]).loadable:
        return f"no conversion of vectors gives {problem.types[LHS]}"
    return "" if _converts(producer.elements) else f"no {CONVERTS} by a scale of the block makes its elements"


class ActivationsCache:
    """Caches activations by LHS, as several matmuls may share one; valid while nothing in front of them changes."""

    def __init__(self) -> None:
        self._found: dict[Hashable, Activations | str] = {}

    def find(self, op: ir.Operation, problem: Problem) -> Activations | str:
        """Returns `find` of a scaled matmul that is not encoded."""
        elements, scales = op.operands[LHS], op.operands[LHS_SCALE]
        key = elements, scales, problem.types[LHS], problem.batch, problem.m, problem.k
        if key not in self._found:
            self._found[key] = find(elements, scales, problem)
        return self._found[key]


def _is_result(read: Read, producer: Producer) -> bool:
    """Returns whether a producer reads a scaled matmul's result, which nothing else reads: what it computes first is
    fused into the matmul, or into the sum of its parts, and stored as narrow as it is."""
    op = graph.producer(graph.look_through_views(read.value))
    return op is not None and _gives_result(op) and _is_read_alone(read.value, producer)


def _gives_result(op: ir.Operation) -> bool:
    """Returns whether an operation gives a scaled matmul's result, encoded or not, or the sum of its parts."""
    return op.name == _UNSET or decision_of(op) is not None or quantiser.is_sum(op)


def _bits(producer: Producer) -> int:
    """Returns the bits of an element of the first tensor that a producer reads."""
    return build.element(reads(producer.nodes)[0].value).width


def _narrowed(
    elements: ir.Value, scales: ir.Value, producer: Producer, is_source: Callable[[ir.Operation], bool]
) -> Producer | None:
    """Returns the same quantiser of the narrowest single tensor in front of it, of those that operations compute."""
    ops = [node.op for node in computed([producer.elements]) if node.inside and node.start is None]
    sources = [op for op in dict.fromkeys(ops) if str(build.element(op.results[0])) in SOURCE_BITS and is_source(op)]
    for op in sorted(sources, key=lambda op: SOURCE_BITS[str(build.element(op.results[0]))]):
        found = quantiser.find(elements, scales, [op])
        if found is not None and found.reads() == {op.results[0]} and len(reads(found.nodes)) == 1:
            return found
    return None


def captures(nodes: Iterable[Node]) -> bool:
    """Returns whether a body captures a value that is no constant: a ukernel cannot be given any."""
    return any(graph.captures(node.op) for node in computed(nodes))


def _is_epilogue(op: ir.Operation) -> bool:
    """Returns whether an elementwise operation is computed from a scaled matmul's result, encoded or not."""
    if _gives_result(op):
        return True
    made_of = (graph.producer(graph.look_through_views(operand)) for operand in op.operands)
    return is_elementwise(op) and any(map(_is_epilogue, filter(None, made_of)))


_UNSET = "iree_encoding.unset_encoding"
CONVERTS = "arith.scaling_truncf"
"""Operations that become conversion instructions of all values of a block at once."""


def _converts(elements: Compute) -> bool:
    """Returns whether elements are the conversion of a value that differs within a block, by a scale that does not."""
    op = elements.op
    if not elements.inside or elements.start is not None or is_elementwise(op) is False:
        return False
    found = [view.operation for view in op.regions[0].blocks[0].operations if view.operation.name in TRUNCATIONS]
    made = [inner for inner in found if inner.name == CONVERTS and inner.results[0] == yielded(op)]
    if len(made) != 1 or any(is_sub_byte(inner.results[0].type) for inner in found if inner not in made):
        return False
    inside = dict(zip(op.regions[0].blocks[0].arguments, (each.inside for each in elements.operands), strict=False))
    x, scale = made[0].operands
    return _depends(x, inside) and not _depends(scale, inside)


def _depends(value: ir.Value, inside: dict[ir.Value, bool]) -> bool:
    """Returns whether a value of a body is computed from an argument that differs within a block."""
    op = graph.producer(value)
    if op is None or value in inside:
        return inside.get(value, False)
    return any(_depends(operand, inside) for operand in op.operands)


def _sizes(read: Read) -> list[int | None]:
    """Returns the sizes of the tensor that is read, including those that only its readers know."""
    pairs = zip(build.static_sizes(read.value), read.subscripts, strict=True)
    return [size if size is not None else index.extent for size, index in pairs]


def _is_row_major(read: Read, m: int | None, k: int) -> bool:
    """Returns whether an [m, k] operand's elements are in row-major order in the tensor that is read.

    A dynamic M is the first dimension of it.
    """
    stride, is_whole = 1, False
    for size, index in reversed(list(zip(_sizes(read), read.subscripts, strict=True))):
        if size == 1:
            continue
        expected = Index("row", stride // k, size) if stride % k == 0 else Index("k", stride, size)
        if is_whole or not (size or (m is None and size is None)) or index != expected:
            return False
        stride, is_whole = (stride, True) if size is None else (stride * size, False)
    return is_whole and stride == k if m is None else stride == m * k


def _batches(read: Read, found: Activations, m: int | None, k: int) -> int:
    """Returns of how many batches a kernel makes rows of an [m, k] operand head by head, as they are read; 0: it does
    not."""
    kernel = offers.offered(found.made[0]) if found.made else None
    if not isinstance(kernel, Prefill):
        return 0
    heads, size = kernel.heads or 0, kernel.value_size
    batches, rest = divmod(heads * size, k)
    if not batches or rest or (m is None and batches > 1):
        return 0
    rows = None if m is None else m // batches
    order = Index("row", rows or 0, batches), Index("k", size, k // size), Index("row", 1, rows), Index("k", 1, size)
    return batches if Index.join_runs(read.subscripts) == Index.join_runs(order) else 0
