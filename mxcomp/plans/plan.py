"""The base class of plans, a way of computing a scaled matmul, and the choice among them.

One plan is one class in one file of this room, and one line in the table of `mxcomp.plans`. Its fields are the entries
of the attribute `mxcomp.scaled_matmul`, so what is decided once travels with the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from iree.compiler import ir

from mxcomp.layout import layout_from
from mxcomp.layout.order import PLAIN_ORDER, Order
from mxcomp.layout.problem import Problem
from mxcomp.matching.decision import PLAIN, Decision
from mxcomp.matching.operands import warning_of
from mxcomp.options import Options
from mxcomp.packing.result_tiles import Launch
from mxcomp.plans.building import Building
from mxcomp.plans.context import Context, Site
from mxcomp.registry import Registry, Ukernel
from mxcomp.selection.limits import limits
from mxcomp.selection.times import UNKNOWN


@dataclass(frozen=True)
class Plan(Decision):
    """A way of computing one scaled matmul; the base class leaves it to IREE."""

    operands: ClassVar[str] = PLAIN
    """The form in which it takes operands."""
    fuses_consumers: ClassVar[bool] = True
    """Whether elementwise consumers may be fused into its dispatch."""
    least_gain: ClassVar[float] = 0.0
    """The least gain, as a fraction of the time of the plan that it replaces."""
    is_open: ClassVar[bool] = True
    """Whether a faster plan is searched for; not where a tuned table has a line."""
    nested: ClassVar[tuple[str, ...]] = ()
    """The names of fields that are plans themselves."""

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        """Returns this plan as a replacement of the best one so far; or why not, "" where that is obvious."""
        return ""

    @classmethod
    def offer(cls, choice: Choice) -> None:
        """Proposes it for each matmul; plans for several matmuls at once override this."""
        for site in choice.sites(cls):
            choice.take(site, cls, cls.propose(site, choice.context, choice.plans[site.index]))

    @classmethod
    def slower(cls, found: Proposal) -> str:
        """Returns a note for the report where it would take longer; "" if that is not worth one."""
        return ""

    def at(self, rows: int) -> Plan:
        """Returns the plan for so many rows."""
        return self

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float:
        """Returns modelled µs of the dispatches that multiply a problem, with so many bytes to store for an element."""
        return UNKNOWN

    def build(self, op: ir.Operation, building: Building) -> None:
        """Replaces an operation by dispatches; nothing is done for what is left to IREE."""

    def reported(self) -> dict[str, Any]:
        """Returns entries of `report.ScaledMatmul`."""
        return {"operands": self.operands}

    @property
    def by_rows(self) -> Sequence[tuple[int | None, Any]]:
        """The plans by the most rows that they are for, None for all others, where there are several."""
        return ()

    @property
    def kernel(self) -> str | None:
        """The name of the kernel that computes a tile; None: IREE generates it."""
        return None

    @classmethod
    def of(cls, other: Plan, **entries: Any) -> Self:
        """Returns this plan with the common entries of another one, and with these."""
        theirs = {each.name for each in fields(other)}
        shared = {each.name for each in fields(cls)} & theirs - {"plan"}
        return cls(**{name: getattr(other, name) for name in shared} | entries)

    @classmethod
    def from_entries(cls, entries: dict[str, Any]) -> Self:
        """Inverts `entries`. Raises TypeError and ValueError for invalid entries."""
        return cls(**{name: _READ[name](value) if name in _READ else value for name, value in entries.items()})


_READ: Mapping[str, Callable[[Any], Any]] = {
    "layout": layout_from,
    "order": lambda entries: Order(**entries),
    **dict.fromkeys(("tile", "gathered", "workgroup_size"), tuple),
}
"""Converters of entries that attributes have in another form."""


@dataclass(frozen=True)
class Proposal:
    """A plan, its modelled µs, and those of the same work without it; without times it is always taken."""

    plan: Plan
    us: float | None = None
    instead_us: float | None = None

    @property
    def is_cheaper(self) -> bool:
        if self.us is None or self.instead_us is None:
            return True
        return self.us < (1 - self.plan.least_gain) * self.instead_us


def modelled(us: float, of: str = "") -> str:
    """Returns the end of a note with the µs of what was chosen, if they are known."""
    return "" if us == UNKNOWN else f", modelled {us:.1f} µs{of}"


def left_to_iree(reason: str, problem: Problem) -> Plan:
    """Returns the plan that leaves a matmul to IREE."""
    return Plan(reason=f"left to IREE: {reason}", warning=warning_of(problem.types[:2]) or None)


@dataclass(frozen=True)
class Launched(Plan, Launch):
    """A plan whose dispatch is ours.

    `limits` are the largest dynamic sizes in elements that buffers allow, of m, n and k as they are multiplied, and the
    most bytes of a result whose M and N are dynamic.
    """

    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def kernel(self) -> str | None:
        return self.ukernel

    def reported(self) -> dict[str, Any]:
        return super().reported() | {"order": str(self.order), "ukernel": self.ukernel}

    def by(self, ukernel: Ukernel, order: Order = PLAIN_ORDER, **entries: Any) -> Self:
        """Returns the plan with the entries of a ukernel's rule, and with these entries."""
        known = {each.name for each in fields(self)} & {"layout", "tile", "workgroup_size", "llvm_func_attrs"}
        rule = {name: getattr(ukernel, name) for name in known}
        return replace(self, **(rule | {"ukernel": ukernel.name, "order": order} | entries))

    def bounded(self, problem: Problem, options: Options, padding: tuple[int, int, int] | None = None) -> Plan:
        """Returns the plan with limits of dynamic sizes, if all fits into buffers, padded to multiples of `padding`."""
        max_bytes = options.target.max_buffer_bytes
        found = limits(problem, padding or (1, 1, 1), max_bytes)
        if found is None:
            return left_to_iree(f"an operand or the result exceeds {max_bytes} bytes", problem)
        return replace(self, limits=found | ({"bytes": max_bytes} if problem.m is problem.n is None else {}))


class Choice:
    """The plans of all matmuls so far, and what was noted against others."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.plans = [Plan() for _ in context.sites]
        self.joined = set[int]()
        """Matmuls that have a plan together with others, so that none is sought for them alone."""
        self._objections = [dict[type[Plan], str]() for _ in context.sites]

    def sites(self, kind: type[Plan]) -> Iterator[Site]:
        """Returns the matmuls that a plan may be proposed for."""
        for site in self.context.sites:
            is_tuned = kind.is_open and self.context.entry(site)[0] is not None
            if site.index not in self.joined and not is_tuned:
                yield site

    def take(self, site: Site, kind: type[Plan], found: Proposal | str) -> None:
        """Takes a proposal if it is cheaper than the current plan; remembers what is noted against it."""
        if isinstance(found, Proposal) and found.is_cheaper:
            self.plans[site.index] = found.plan
        elif reason := found if isinstance(found, str) else kind.slower(found):
            self._objections[site.index][kind] = reason

    def join(self, site: Site, plan: Plan) -> None:
        """Takes a plan that a matmul shares with others."""
        self.plans[site.index] = plan
        self.joined.add(site.index)

    def decided(self) -> list[Plan]:
        """Returns all plans with their numbers, and the notes against those that were not chosen."""
        found = []
        for site, plan, objections in zip(self.context.sites, self.plans, self._objections, strict=True):
            _, objection = self.context.entry(site, site.index in self.joined)
            others = [reason for kind, reason in objections.items() if not isinstance(plan, kind)]
            note = "; ".join(filter(None, (plan.note, objection, *others))) or None
            found.append(replace(plan, index=site.index, note=note))
        return found
