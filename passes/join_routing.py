"""mxcomp-join-routing: what a router computes of a few tokens' scores is one dispatch, up to the tables of its experts.

Before (GPT-OSS's, of a token):

    %n = linalg.generic {mxcomp.ranks} ins(%scores, %scores : tensor<1x32xbf16>, …) -> tensor<1x32xi32>
    %p = linalg.generic … ins(%n) -> tensor<1x4xi32>            (the best: four dispatches by `mxcomp-rank-sorts`)
    …  softmax of the best's scores, experts as i32, and tables of slots by `mxcomp.routing.sorting`: six more

After:

    %d:4 = flow.dispatch.region -> (tensor<4xbf16>, tensor<4xi32>, tensor<8xi32>, …) {
      linalg.generic {mxcomp.kernel = "…", iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_chain_…">}
          ins(%scores : tensor<32xbf16>) …
    }

All operations around such a ranking go in whose tensors are about as small as what is ranked, those behind it as
far as nothing else is between. Where that is too much for one workgroup they stay, or those behind what is too much
are joined.

Where products of a single token's experts read it first, each of their workgroups computes it in front, and stores a
copy of it (`mxcomp.ukernels.chain_ahead`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from iree.compiler import ir

from mxcomp.mlir import attributes, build, graph
from mxcomp.options import Options
from mxcomp.packing import standing
from mxcomp.ukernels import chain_operations as operations
from mxcomp.ukernels.chain import Chain
from mxcomp.ukernels.chain_ahead import ChainAhead
from mxcomp.ukernels.top_k import TopK

OPTIONS = ("ukernels", "reference")

_OF_LDS = 4, 5
"""The part of LDS that is taken at most, 4 of 5."""
_LARGER = 2
"""The most elements of a tensor, over those of what is ranked."""
_LEAST = 2
"""The fewest dispatches that are joined."""


def run(module: ir.Operation, options: Options) -> None:
    """Joins what is around each ranking below `module`."""
    if not options.has_kernels:
        return
    ranks = [op for op in graph.walk(module, bodies=False) if attributes.RANKS in op.attributes]
    part, of = _OF_LDS
    most = options.target.lds_bytes * part // of
    while ranks:
        op, *ranks = ranks
        found = None if graph.is_in_dispatch(op) else _Growing(op).chain()
        if found is not None and len(found.costly) >= _LEAST and found.lds_bytes <= most:
            ranks = [each for each in ranks if each not in found.ops]  # while they are there
            _replace(op, found)
    for op in [op for op in graph.walk(module, bodies=False) if attributes.AHEAD in op.attributes]:
        del op.attributes[attributes.AHEAD]


class _Growing:
    """The operations around a ranking."""

    def __init__(self, ranking: ir.Operation) -> None:
        self.block = ranking.block
        self.most = operations.size(ranking.results[0])
        self.order = [view.operation for view in self.block.operations]
        self.number = {op: number for number, op in enumerate(self.order)}
        self.inside: set[ir.Operation] = set()
        self._take(ranking)
        values = set(ranking.results)
        for op in self.order[self.number[ranking] + 1 :]:
            if values.intersection(operations.read(op)) and self._fits(op):
                self._take(op)
                values |= set(op.results)

    def _fits(self, op: ir.Operation) -> bool:
        return operations.is_possible(op) and all(operations.size(value) <= _LARGER * self.most for value in op.results)

    def _take(self, op: ir.Operation) -> None:
        """Takes an operation, and those before it that are as small."""
        if op not in self.inside and op.block == self.block and self._fits(op):
            self.inside.add(op)
            for made in filter(None, map(graph.producer, operations.read(op))):
                self._take(made)

    def chain(self) -> Chain | None:
        """Returns the chain of what can be computed before any of it is read from outside."""
        self._drop_unreadable()
        ends = [self.number[user] for op in self.inside for user in self._outside(op)]
        if not ends:
            return None
        ops = [op for op in self.order[: min(ends)] if op in self.inside]
        self.inside = set(ops)
        if any(sort.place not in self.inside for op in ops if (sort := TopK.of(op)) is not None):
            return None  # which finds what nothing has counted
        operands = dict.fromkeys(value for op in ops for value in operations.read(op) if not _is_made(value, ops))
        values = [value for op in ops for value in op.results if self._outside(op, [value])]
        sources = dict.fromkeys(_source(value, self.inside) for value in values)
        has_memory = sources and all(map(operations.has_numbers, sources))
        return Chain(ops, list(operands), list(sources)) if has_memory else None

    def _drop_unreadable(self) -> None:
        """Drops operations with operands from outside that the kernel cannot read."""
        while wrong := [op for op in self.inside if not all(map(self._is_readable, operations.read(op)))]:
            self.inside -= set(wrong)

    def _is_readable(self, value: ir.Value) -> bool:
        return operations.is_operand(value) or _is_made(value, self.inside)

    def _outside(self, op: ir.Operation, values: Sequence[ir.Value] | None = None) -> set[ir.Operation]:
        """Returns the operations of the block that read results, in it or in their regions, and stay. What is computed
        of no tensor is there for them as well."""
        if not operations.read(op):
            return set()
        users = [use.owner.operation for value in values or list(op.results) for use in value.uses]
        return {at for user in users if (at := graph.in_block(user, self.block)) not in self.inside}


def _is_made(value: ir.Value, ops: Collection[ir.Operation]) -> bool:
    made = graph.producer(value)
    return made is not None and made in ops


def _source(value: ir.Value, ops: Collection[ir.Operation]) -> ir.Value:
    """Returns the tensor of the chain whose reshape a value is."""
    return graph.look_through(value, lambda op: op in ops and op.name in graph.RESHAPES)


def _replace(ranking: ir.Operation, found: Chain) -> None:
    inside, values = set(found.ops), [value for op in found.ops for value in op.results]
    sources = {value: source for value in values if (source := _source(value, inside)) in found.values}
    reader = _reader(found, sources)
    where = ir.InsertionPoint.after(found.ops[-1]) if reader is None else ir.InsertionPoint(reader.parent)
    with standing.named(ranking, "routing", "routing"), where:
        operands = [build.flat(value) for value in found.operands]
        made = standing.dispatch(found, operands) if reader is None else _ahead(reader, found, operands, sources)
        parts = zip(found.values, map(build.flat, made), strict=True)
        results = {value: build.part(each, [0], [operations.size(value)]) for value, each in parts}
        for value, source in sources.items():
            value.replace_all_uses_with(build.reshaped(results[source], build.static_sizes(value)))
    if reader is not None:
        graph.erase_dead(reader.parent.operation)
    for op in reversed(found.ops):
        if not any(True for value in op.results for _ in value.uses):
            op.erase()


def _reader(found: Chain, sources: Mapping[ir.Value, ir.Value]) -> ir.Operation | None:
    """Returns the first operation that reads results of a chain, if it may compute these itself."""
    block = found.ops[-1].block
    uses = [use.owner.operation for value in sources for use in value.uses]
    *_, first = reversed(graph.in_order(at for op in uses if (at := graph.in_block(op, block)) not in found.ops))
    inner = [op for op in uses if graph.in_block(op, block) == first]
    if any(op != inner[0] or attributes.AHEAD not in op.attributes for op in inner):
        return None
    return inner[0] if _with(inner[0], found, sources).is_short else None


def _with(reader: ir.Operation, found: Chain, sources: Mapping[ir.Value, ir.Value]) -> ChainAhead:
    """Returns the kernel of an operation with a chain in front."""
    told = attributes.to_python(reader.attributes[attributes.AHEAD])
    reads = {number: sources[value] for number, value in enumerate(reader.operands) if value in sources}
    kernel = ir.StringAttr(reader.attributes[attributes.KERNEL]).value
    own = ir.RankedTensorType(reader.results[0].type)
    return ChainAhead(found, kernel, reads, told["threads"], own, tuple(told["along"]), told["llvm_func_attrs"])


def _ahead(
    reader: ir.Operation, found: Chain, operands: list[ir.Value], sources: Mapping[ir.Value, ir.Value]
) -> list[ir.Value]:
    """Builds the dispatch of an operation with a chain in front, in its place, and returns the chain's results."""
    kernel = _with(reader, found, sources)
    *taken, _ = (value for number, value in enumerate(reader.operands) if number not in kernel.reads)
    with reader.parent.location:
        result, *made = standing.dispatch(kernel, [*operands, *taken])
    reader.parent.results[0].replace_all_uses_with(result)
    return made
