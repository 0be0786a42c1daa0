"""Computes in a product's kernel what is behind it: operations are followed, element by element (`chain.py`).

What they read besides is loaded in front of the product: they are written twice, first with zeros in the place of
products, for their loads alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from iree.compiler import ir
from iree.compiler.dialects import scf

from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import steps_reduced
from mxcomp.ukernels import builder, chain_operations
from mxcomp.ukernels.chain import Elements, Load, Memory

MOST_REDUCED = 16
"""The most steps of a reduction, which are written one behind the other."""


@dataclass(frozen=True)
class Computed:
    """A tensor that `ops`, in order, compute of a product and of other tensors."""

    product: ir.Value
    value: ir.Value
    ops: Sequence[ir.Operation]

    @property
    def others(self) -> list[ir.Value]:
        """The tensors that are read besides the product."""
        made = {self.product, *(value for op in self.ops for value in op.results)}
        read = dict.fromkeys(value for op in self.ops for value in chain_operations.read(op))
        return [value for value in read if value not in made]

    @property
    def is_alone(self) -> bool:
        """Whether nothing else is computed of the product."""
        inside, block = set(self.ops), self.ops[-1].block
        values = [self.product, *(each for op in _behind(self.product, self.ops) for each in op.results)]
        uses = (use.owner.operation for value in values if value != self.value for use in value.uses)
        return all(graph.in_block(user, block) in inside for user in uses)


def of(product: ir.Value, value: ir.Value) -> Computed | None:
    """Returns how a tensor is computed of a product, if a kernel can do so."""
    ops = _around(value)
    behind = _behind(product, ops)
    inside, read = set[ir.Operation](), {value}
    for op in reversed(ops):
        if read.isdisjoint(op.results):
            continue
        users = {graph.in_block(use.owner.operation, op.block) for result in op.results for use in result.uses}
        if op in behind or op.name == "linalg.fill" or users <= inside:
            if _is_followed(op):
                inside.add(op)
                read |= set(chain_operations.read(op))
            elif op in behind:
                return None
    found = Computed(product, value, [op for op in ops if op in inside])
    return found if product in read and all(map(chain_operations.has_numbers, found.others)) else None


def last(product: ir.Value, size: int) -> Computed | None:
    """Returns the last tensor of so many elements that is computed of a product, of which nothing else is."""
    behind = _behind(product, _around(product))
    values = [value for op in behind for value in op.results if chain_operations.size(value) == size]
    found = (of(product, value) for value in reversed(values))
    return next((each for each in found if each is not None and each.is_alone), None)


def _around(value: ir.Value) -> list[ir.Operation]:
    """Returns the operations of the block in which a value is made."""
    made = graph.producer(value)
    return [view.operation for view in made.block.operations] if made is not None else []


def _behind(product: ir.Value, ops: Sequence[ir.Operation]) -> dict[ir.Operation, None]:
    """Returns the operations that depend on a product, in order."""
    found, values = dict[ir.Operation, None](), {product}
    for op in ops:
        if not values.isdisjoint(chain_operations.read(op)):
            found[op] = None
            values |= set(op.results)
    return found


def _is_followed(op: ir.Operation) -> bool:
    if not all(map(chain_operations.has_numbers, op.results)):
        return False
    if op.name in chain_operations.VIEWS:  # of a sort a slice is read, not all that was sorted
        return chain_operations.is_of_tensors(op) and graph.producer(op.operands[0], graph.SORT) is None
    is_known = op.name in ("linalg.generic", "linalg.fill") and chain_operations.is_followed(op, math.inf)
    return is_known and (steps_reduced(op) or MOST_REDUCED + 1) <= MOST_REDUCED


@dataclass
class Loads:
    """Writes the element of a computed tensor at a place: `ahead` what it loads of `memory`, and then `element`."""

    computed: Computed
    memory: Sequence[ir.Value]
    place: Sequence[ir.Value]
    _values: list[ir.Value] = field(default_factory=list)

    def ahead(self, condition: ir.Value) -> None:
        """Loads what it is computed from, besides the product, in waves where that is wanted."""
        trial = scf.IfOp(condition)  # what is loaded is known when it has been written
        with ir.InsertionPoint(trial.then_block):
            kinds = [value.type for value in self._loaded()]
        trial.operation.erase()
        none = [builder.constant_zeros(kind) for kind in kinds]
        self._values = builder.either(condition, kinds, self._loaded, lambda: none)

    def _loaded(self) -> list[ir.Value]:
        zero, values = builder.constant_zeros(ir.F32Type.get()), list[ir.Value]()

        def load(memory: Memory, at: Sequence[ir.Value]) -> ir.Value:
            values.append(memory.load(at))
            return values[-1]

        kept: dict[ir.Value, Load] = {self.computed.product: lambda _: zero}
        for each, buffer in zip(self.computed.others, self.memory, strict=True):
            kept[each] = partial(load, Memory(buffer, [size or 1 for size in build.static_sizes(each)]))
        Elements(kept).at(self.computed.value, self.place)
        return values

    def element(self, products: Load) -> ir.Value:
        """Returns the element, as a vector, from what was loaded, in the same order."""
        values = iter(self._values)
        kept = dict.fromkeys(self.computed.others, lambda _: next(values))
        found = Elements(kept | {self.computed.product: products}).at(self.computed.value, self.place)
        return builder.from_elements([found])
