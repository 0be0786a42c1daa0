"""Routing of a mixture of experts on the device: which experts a token goes to, and tokens sorted by expert.

    from mxcomp import routing

    def route(logits):
        made = routing.route(logits, routing.gpt_oss(4), block_m=32)
        return made.weights, made.slots, made.experts, made.valid_blocks

    program = mxcomp.compile(mx.module(route, "64x128xf32"))

`choosing` builds the top-k (one dispatch, two more where experts come in groups), `sorting` the tables of a grouped
matmul (four dispatches; five or six for more than 1024 slots). All sizes are static, and IR is linalg and tensor
operations with one `iree_linalg_ext.scatter`, in dispatch regions for a GPU and without them for a CPU. `reference` is
the same in NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.errors import InputError
from mxcomp.mlir import build
from mxcomp.routing.choosing import choose
from mxcomp.routing.rules import SIGMOID, SOFTMAX, Extent, Rule, deepseek_v3, gpt_oss, qwen3
from mxcomp.routing.sorting import sort

__all__ = ["SIGMOID", "SOFTMAX", "Extent", "Routing", "Rule", "deepseek_v3", "gpt_oss", "qwen3", "route"]


@dataclass(frozen=True)
class Routing:
    """What a grouped matmul of B blocks of `block_m` rows asks for.

    Attributes:
        extent: The static sizes.
        chosen: i32 [T, top_k], the experts of each token, best first.
        weights: f32 [T, top_k], their weights.
        slots: i32 [B · block_m], the slot of each row (`token · top_k + j`), or T · top_k of a padding row.
        experts: i32 [B], that of a block; of blocks behind the valid ones the last expert, so that it may be read.
        valid_blocks: i32 [1], how many there are; they come first.
        positions: i32 [T, top_k], the row of each slot, of all B · block_m.
    """

    extent: Extent
    chosen: ir.Value
    weights: ir.Value
    slots: ir.Value
    experts: ir.Value
    valid_blocks: ir.Value
    positions: ir.Value


def route(logits: ir.Value, rule: Rule, block_m: int, bias: ir.Value | None = None, regions: bool = True) -> Routing:
    """Routes tokens by logits [T, E] of f32, f16 or bf16, with an f32 [E] that is added to scores for the choice alone.

    Builds at the insertion point, as all of `mxcomp.ir`. Without `regions` IREE cuts dispatches itself: into more of
    them, but for a CPU, whose stack is too small for what a wave has in registers, that is needed. Raises InputError
    for sizes that are dynamic or do not fit.
    """
    sizes = build.static_sizes(logits)
    if len(sizes) != 2 or None in sizes or not isinstance(build.element(logits), ir.FloatType):
        raise InputError(f"logits {logits.type}: expected static [tokens, experts] of f32, f16 or bf16")
    tokens, experts = (size or 0 for size in sizes)
    if bias is not None and bias.type != build.tensor_type((experts,), "f32"):
        raise InputError(f"bias {bias.type}: expected tensor<{experts}xf32>")
    rule.check(experts)
    extent = Extent(tokens, experts, rule.top_k, block_m)
    extent.check()
    choice = choose(logits, rule, bias, regions)
    found = sort(choice.experts, extent, regions)
    tables = found.slots, found.experts, found.valid_blocks, found.positions
    return Routing(extent, choice.experts, choice.weights, *tables)
