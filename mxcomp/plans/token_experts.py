"""The plan of a single token's experts: gate and up with the quantiser of hidden activations, and down with its sum.

    %h = flow.dispatch.region {                                              biases, and hidden activations
      linalg.generic {mxcomp.kernel = "… @quantise"} ins(%x, %gate_up, %scales, %ids, %bias)
    }
    %y = flow.dispatch.region {                          biases, the sum over experts by weights, perhaps a residual
      linalg.generic {mxcomp.kernel = "… @quantise"} ins(%h, %down, %scales, %ids, %bias, %weights, %residual)
    }

It saves the dispatch of the sum, and what each workgroup of a kernel does that computes hidden activations itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from iree.compiler import ir

from mxcomp.layout import LHS, LHS_SCALE, RHS, RHS_SCALE
from mxcomp.layout.inner_tiles import BLOCK
from mxcomp.layout.problem import Problem
from mxcomp.matching import activations, gates, gathers
from mxcomp.matching.activations import Activations
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.gathers import Gather
from mxcomp.mlir import attributes, build, graph, notes
from mxcomp.mlir.build import static_sizes
from mxcomp.options import AUTO, FASTEST, OFF
from mxcomp.packing import block_quantiser, standing
from mxcomp.packing.packer import part_location
from mxcomp.plans import by_id
from mxcomp.plans.building import Building, Matmul
from mxcomp.plans.context import Site
from mxcomp.plans.joint import Paired
from mxcomp.plans.plan import Choice
from mxcomp.selection.layers import better, token_ways, us_of
from mxcomp.target import Target
from mxcomp.ukernels import computed, token_experts
from mxcomp.ukernels.token_experts import Down, GateUp, Weights

_NOTE = "a token's experts are two dispatches"
_NOT = "a token's experts are not two dispatches: "


@dataclass(frozen=True)
class TokenExperts(Paired):
    """A plan of gate and up, or of down."""

    plan: str = "token_experts"

    fuses_consumers: ClassVar[bool] = False
    reads_far: ClassVar[bool] = True

    @classmethod
    def offer(cls, choice: Choice) -> None:
        context = choice.context
        options = context.options
        if not context.may_pack or options.ukernels != FASTEST or options.fuse_quantisers == OFF:
            return
        for chain in gates.find(list(context.ops), watched=options.reference):
            up, down = context.site_of[chain.result], context.site_of[chain.consumer]
            if all(site.problem.m == 1 and site.experts for site in (up, down)) and not chain.objection:
                for site, plan in zip((up, down), cls._plans(up, down, choice), strict=False):
                    choice.join(site, plan)

    @classmethod
    def _plans(cls, up: Site, down: Site, choice: Choice) -> list[TokenExperts]:
        """Returns plans of both; none if they cannot be two dispatches, or would take longer."""
        context, options = choice.context, choice.context.options
        found = _match(context.ops[up.index], context.ops[down.index], up.problem, down.problem, options.target)
        if isinstance(found, str):
            if found:
                context.note(up, f"{_NOT}{found}")
            return []
        note = _NOTE
        is_far = any(each.weights.is_far for each in (found.gate_up, found.down))
        if options.fuse_quantisers == AUTO and not is_far:
            ours, others = token_ways(down.stored, context.registry)
            if ours is None or others is None:
                return []
            us = f"modelled {us_of(ours):.1f} µs, others {us_of(others):.1f}"
            if better(ours, others) is others:
                context.note(up, f"{_NOT}{us}")
                return []
            note = f"{_NOTE}: {us}"
        plans = []
        for site, partner, kernel in ((up, down, found.gate_up), (down, up, found.down)):
            instead = choice.plans[site.index]
            plan = cls(layout=kernel.weights.layout, partner=partner.index, instead=instead, note=note)
            read = by_id.reading(site, context, plan.bounded(site.problem, options))
            if not isinstance(read, TokenExperts) or read.gathered != (RHS, RHS_SCALE):
                return []
            plans.append(replace(read, ukernel=kernel.prefix))
        return plans

    @property
    def packs(self) -> Sequence[int]:
        return RHS, RHS_SCALE

    def build(self, op: ir.Operation, building: Building) -> None:
        """Builds both dispatches when down is reached, if that is still possible, else each as it would be instead."""
        index = self.index or 0
        if index < self.partner:
            down, _ = building.plans[self.partner]
            found = _found(op, down, building)
            if not isinstance(found, str):
                building.waiting[index] = self.prepared(op, building)
                return
            notes.note(op, index, f"{_NOT}{found}")
        elif self.partner in building.waiting:
            _, up = building.waiting.pop(self.partner)
            _, down = self.prepared(op, building)
            found = _found(up.op, op, building)
            assert isinstance(found, _Match)
            self._finish(up, down, found, building)
            return
        self.build_instead(op, building)

    def _finish(self, up: Matmul, down: Matmul, found: _Match, building: Building) -> None:
        """Replaces both matmuls, and what is computed behind them."""
        value = found.down.computed.value
        with up.op.context, part_location(self.partner, "matmul", up.op), ir.InsertionPoint(down.op):
            records = _dispatch(found.gate_up, found.token.source, up)
        with part_location(self.index, "matmul", down.op), ir.InsertionPoint(value.owner):
            made = build.reshaped(_dispatch(found.down, records, down), static_sizes(value))
            value.replace_all_uses_with(made)
        for each in (down, up):
            with each.op.location, ir.InsertionPoint(each.unset):
                each.unset.results[0].replace_all_uses_with(building.gone(each.unset.results[0]))
            each.erase()
        building.sources += [result for op in found.down.computed.ops for result in op.results]


@dataclass(frozen=True)
class _Match:
    """The token, and both kernels."""

    token: Activations
    gate_up: GateUp
    down: Down


def _found(up: ir.Operation, down: ir.Operation, building: Building) -> _Match | str:
    """Returns the kernels of encoded matmuls; or why not."""
    with up.context, up.location:
        return _match(up, down, problem_of(up), problem_of(down), building.options.target)


def _match(up: ir.Operation, down: ir.Operation, of_up: Problem, of_down: Problem, target: Target) -> _Match | str:
    """Returns the kernels of gate and up and of down; or why a token's experts are something else, "" of others."""
    token, hidden = (_quantised(op, problem) for op, problem in ((up, of_up), (down, of_down)))
    if isinstance(token, str) or isinstance(hidden, str) or not token.shared or hidden.pair is None:
        return ""
    if token.bits != token_experts.TOKEN_BITS or len(of_up.batch) != 1:
        return "the token is not quantised from 16 bits"
    products = [_result(op) for op in (up, down)]
    assert hidden.hidden is not None
    behind = computed.of(products[0], hidden.hidden.op.results[0]), computed.last(products[1], of_down.n or 0)
    if behind[0] is None or behind[1] is None or not behind[0].is_alone:
        return "what is computed of products is not followed"
    gathered = [each for op in (up, down) for i in (RHS, RHS_SCALE) if (each := _by_id(op, i)) is not None]
    ids = [each.ids for each in gathered]
    if len(ids) < 4 or len(set(ids)) > 1 or str(build.element(ids[0])) != "i32":
        return "experts are not those of one table of i32"
    chosen = of_up.matrices
    of_token, blocks = ((problem.k or 0) // BLOCK for problem in (of_up, of_down))
    weights = [
        Weights.of(problem.types[RHS], static_sizes(each.source)[0] or 0, problem.n or 0, problem.k or 0, is_down)
        for each, problem, is_down in ((gathered[0], of_up, False), (gathered[2], of_down, True))
    ]
    texts = (block_quantiser.text(each, size, True) for each, size in ((token, of_token), (hidden, blocks)))
    gate_up = GateUp(target, of_up.types[LHS], weights[0], chosen, behind[0], next(texts), blocks, of_token)
    both = gate_up, Down(target, of_down.types[LHS], weights[1], chosen, behind[1], next(texts), blocks)
    return next(filter(None, (each.objection for each in both)), "") or _Match(token, *both)


def _quantised(op: ir.Operation, problem: Problem) -> Activations | str:
    """Returns what the LHS of a matmul, perhaps encoded, is quantised from; or why a kernel cannot do that."""
    elements, scales = (graph.look_through(op.operands[index], (_ENCODES,)) for index in (LHS, LHS_SCALE))
    return activations.find(elements, scales, problem)


def _result(op: ir.Operation) -> ir.Value:
    """Returns the result of a matmul, behind its encoding."""
    user = graph.only_user(op)
    return user.results[0] if user is not None and user.name == _DECODES else op.results[0]


_ENCODES, _DECODES = "iree_encoding.set_encoding", "iree_encoding.unset_encoding"


def _by_id(op: ir.Operation, index: int) -> Gather | None:
    """Returns how an operand of a matmul, perhaps encoded, is selected by ids."""
    return gathers.find(graph.look_through(op.operands[index], (_ENCODES,)))


def _dispatch(kernel: GateUp | Down, lhs: ir.Value, matmul: Matmul) -> ir.Value:
    """Returns the result of a kernel's dispatch."""
    ids = matmul.ids[RHS]
    others = [build.flat(each) for each in kernel.computed.others]
    given = [lhs, *matmul.packed]
    taken = [build.bitcast(*each) for each in zip(given, kernel.inputs, strict=False)]
    (made,) = standing.dispatch(kernel, [*taken, ids, *others])
    if isinstance(kernel, GateUp):
        known = {"threads": kernel.threads, "along": kernel.along, "llvm_func_attrs": kernel.llvm_func_attrs}
        standing.placeholder(made).attributes[attributes.AHEAD] = attributes.from_python(known)
    return made
