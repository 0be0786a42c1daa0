"""The inputs of choosing plans: the matmuls of a module, their surroundings, and the options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from iree.compiler import ir

from mxcomp.layout import ACC, LHS, LHS_SCALE, RHS
from mxcomp.layout.problem import Problem
from mxcomp.matching import activations, gathers, pairs
from mxcomp.matching.activations import Activations, ActivationsCache
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.consumers import STORED_BYTES, stored_type
from mxcomp.matching.decision import is_recognised
from mxcomp.matching.storage import is_gathered
from mxcomp.matching.symmetry import Sources, is_symmetric
from mxcomp.mlir import build, graph, notes
from mxcomp.options import BENEFIT, FASTEST, NONE, Options
from mxcomp.registry import AnyInstance, Registry
from mxcomp.selection.tuned import Entry, Table


@dataclass(frozen=True)
class Site:
    """A matmul and its surroundings in the module.

    Attributes:
        problem: What is multiplied.
        index: Its number among those that are recognised.
        result: The type of an element as it is stored, behind what is fused.
        is_gathered: An operand is stored in another order.
        is_symmetric: LHS and RHS may be one tensor, which ukernels over inner tiles, and row-major ones, cannot be
        given.
        siblings: Other problems of the same LHS, which are to share its packing, and bytes of their results' elements.
        partner: The index of the other one, where two are gate and up of a gated MLP.
        experts: How many matrices its RHS is chosen from, where its kernel may read them through ids.
    """

    problem: Problem
    index: int = 0
    result: str = "f32"
    is_gathered: bool = False
    is_symmetric: bool = False
    siblings: tuple[tuple[Problem, int], ...] = ()
    partner: int | None = None
    experts: int | None = None

    @property
    def result_bytes(self) -> int:
        """The bytes of a stored element."""
        return STORED_BYTES[self.result]

    @property
    def stored(self) -> Problem:
        """The problem with all matrices that its RHS is selected from."""
        return self.problem if self.experts is None else replace(self.problem, stored=(None, self.experts))


@dataclass(frozen=True)
class Context:
    """The options, and all matmuls of a module; operations are those of `sites`."""

    registry: Registry
    options: Options
    table: Table | None = None
    sites: Sequence[Site] = ()
    ops: Sequence[ir.Operation] = ()
    _activations: ActivationsCache = field(default_factory=ActivationsCache)

    @staticmethod
    def of(module: ir.Operation, options: Options, read_table: Callable[[Path, Registry], Table]) -> Context:
        """Returns the context of the matmuls below a module without a decision. Raises UkernelError and InputError."""
        ops = [op for op in graph.walk(module, bodies=False) if is_recognised(op)]
        registry = Registry(options.target, options.ukernel_dirs, stock=not options.reads_in_place)
        if options.ukernels not in (FASTEST, BENEFIT, NONE):
            registry[options.ukernels]
        table = None if options.tuned is None else read_table(options.tuned, registry)
        notes.warn(module, [] if table is None else [str(fault) for fault in table.faults])
        return Context(registry, options, table, _sites(ops, options), ops)

    def entry(self, site: Site, is_joined: bool = False) -> tuple[Entry | None, str]:
        """Returns the entry of a tuned table for a matmul; or why that cannot be followed."""
        entry = None if self.table is None else self.table.find(site.problem, site.result)
        if entry is None:
            return None, ""
        objection = entry.objection(site.is_symmetric, is_joined, self.options)
        return (None, f"{entry.line}, which is not followed: {objection}") if objection else (entry, "")

    @property
    def may_pack(self) -> bool:
        """Whether ukernels may have dispatches of their own form: the reference exists to check packing."""
        return self.options.data_tiling and not self.options.reference

    @property
    def by_time(self) -> bool:
        """Whether the fastest ukernel is wanted."""
        return self.options.ukernels == FASTEST

    def asked_for(self, instances: Iterable[AnyInstance]) -> list[AnyInstance]:
        """Returns those that may be chosen: the one of the name that is asked for, or any that the GPU runs."""
        runnable = self.registry.runnable(instances)
        return [each for each in runnable if self.by_time or each.name == self.options.ukernels]

    @cached_property
    def site_of(self) -> dict[ir.Operation, Site]:
        """The sites by operation."""
        return dict(zip(self.ops, self.sites, strict=True))

    def activations(self, site: Site) -> Activations | str:
        """Returns the activations that the LHS is quantised from, or why a kernel cannot do that."""
        return self._activations.find(self.ops[site.index], site.problem)

    def is_made_by_head(self, site: Site) -> bool:
        """Returns whether kernels make activations head by head, which may quantise and pack them."""
        op = self.ops[site.index]
        found = activations.find(op.operands[LHS], op.operands[LHS_SCALE], site.problem, True)
        return isinstance(found, Activations) and found.batches > 0

    def note(self, site: Site, reason: str) -> None:
        """Adds a reason to the report why something was not done."""
        notes.note(self.ops[site.index], site.index, reason)


def _sites(ops: Sequence[ir.Operation], options: Options) -> list[Site]:
    sources, alike = Sources(), pairs.find(ops)
    problems, results = [problem_of(op) for op in ops], [stored_type(op) for op in ops]
    by_lhs: dict[ir.Value, list[int]] = {}
    for index, op in enumerate(ops):
        by_lhs.setdefault(op.operands[LHS], []).append(index)
    return [
        Site(
            problems[index],
            index,
            results[index],
            is_gathered=any(map(is_gathered, list(op.operands)[:ACC])),
            is_symmetric=is_symmetric(op, sources),
            siblings=tuple((problems[i], STORED_BYTES[results[i]]) for i in by_lhs[op.operands[LHS]] if i != index),
            partner=alike.get(index),
            experts=_experts(op, problems[index], options),
        )
        for index, op in enumerate(ops)
    ]


def _experts(op: ir.Operation, problem: Problem, options: Options) -> int | None:
    gather = gathers.find(op.operands[RHS])
    if not problem.batch or gather is None or gather.leading != 1 or options.reference or not options.reads_in_place:
        return None
    return build.static_sizes(gather.source)[0]
