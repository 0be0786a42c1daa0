"""Routes tokens in a mixture of experts on the device: chooses experts for each token, and sorts tokens by expert.

    from mxcomp import routing

    def route(logits):
        made = routing.route(logits, routing.gpt_oss(4), block_m=32)
        return made.weights, made.slots, made.experts, made.valid_blocks

    program = mxcomp.compile(mx.module(route, "64x128xf32"))

`choosing` builds the top-k (one dispatch, two more where experts come in groups), `sorting` the tables of a grouped
matmul (one dispatch of a kernel of ours, where mxcomp compiles; elsewhere, and for more than 4096 slots or more tables
than LDS holds, four to six). All sizes are static, and IR is linalg and tensor operations with one
`iree_linalg_ext.scatter`, in dispatch regions for a GPU and without them for a CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.errors import InputError
from mxcomp.mlir import build
from mxcomp.mlir import scalars as s
from mxcomp.mlir.loops import tabled
from mxcomp.routing.choosing import choose
from mxcomp.routing.rules import SIGMOID, SOFTMAX, Extent, Rule, deepseek_v3, gpt_oss, qwen3
from mxcomp.routing.sorting import sort

__all__ = [
    "SIGMOID", "SOFTMAX", "Extent", "Routing", "Rule", "block_m", "deepseek_v3", "given", "gpt_oss", "qwen3", "route",
]  # fmt: skip


@dataclass(frozen=True)
class Routing:
    """The tables that a grouped matmul of B blocks of BM rows takes; all integers are i32, all sizes static.

    Slots are the top-k choices of all tokens, slot t · top_k + i the i-th of token t. Tables may also be one's own.
    A single token's slots have a block each, in their order.

    Attributes:
        slots: [B, BM], the slot of each row; in the padding any number from T · top_k on (`route`: that one).
        experts: [B], the expert of each block; negative in blocks of padding alone, which are not multiplied then.
        positions: [T, top_k], the row of each slot, of all B · BM; any other number (negative, or B · BM and more) of a
            slot whose expert is not here, for which nothing is added.
        weights: [T, top_k] f32, by which results are multiplied before they are added up.
        valid_blocks: [1], how many blocks have a token; they come first. Of `route`.
        chosen: [T, top_k], the experts of each token, best first. Of `route`.
    """

    slots: ir.Value
    experts: ir.Value
    positions: ir.Value
    weights: ir.Value
    valid_blocks: ir.Value | None = None
    chosen: ir.Value | None = None

    def __post_init__(self) -> None:
        """Raises InputError for tables that do not belong together."""
        shapes = [build.static_sizes(value) for value in (self.slots, self.experts, self.positions, self.weights)]
        slots, experts, positions, weights = shapes
        kinds = [str(build.element(value)) for value in (self.slots, self.experts, self.positions, self.weights)]
        right = len(slots) == 2 and experts == slots[:1] and len(weights) == 2 and positions == weights
        if not right or kinds != ["i32", "i32", "i32", "f32"] or any(None in shape for shape in shapes):
            found = ", ".join(str(value.type) for value in (self.slots, self.experts, self.positions, self.weights))
            raise InputError(f"routing by {found}: expected static i32 [B, BM], [B], [T, top_k] and f32 [T, top_k]")

    @property
    def top_k(self) -> int:
        return build.static_sizes(self.weights)[1] or 1


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
    return _routed(choice.experts, choice.weights, extent, regions)


def given(chosen: ir.Value, weights: ir.Value, experts: int, block_m: int, regions: bool = True) -> Routing:
    """Routes, like `route`, by experts i32 [T, top_k] and weights f32 [T, top_k] that are chosen already.

    An expert outside 0 … experts - 1, such as -1, is not here (on another device, perhaps): it takes no row, and
    nothing is added for it. So top_k may exceed `experts`. Raises InputError.
    """
    tokens, top_k = (size or 0 for size in build.static_sizes(weights))
    extent = Extent(tokens, experts, top_k, block_m)
    extent.check()
    here = tabled(
        "tj", (tokens, top_k), "i32", [("tj", chosen)], lambda e, _: s.select(s.above(experts, e), e, NOT_HERE)
    )
    return _routed(here, weights, extent, regions)


NOT_HERE = -1
"""The expert index of a slot without an expert."""


def block_m(tokens: int, experts: int, top_k: int) -> int:
    """Returns the number of rows of a block for so many tokens: the smallest of a ukernel that fits most experts'
    tokens; of a single token, one."""
    if tokens == 1:
        return 1
    mean = tokens * top_k / experts
    return next(rows for rows, most in MEANS.items() if tokens <= rows or mean <= most)


MEANS = {2: 1, 8: 3, 16: 18, 32: 28, 64: 56, 128: 1200, 256: math.inf}
"""The mean number of tokens of an expert up to which blocks have so many rows: experts with more take two blocks.

2 and 8 rows have ukernels that load no others (`mxcomp.ukernels.family`). Published layers that `mxcomp-bench --moe`
models take 0.4 % longer in these blocks, on average, than in the fastest for each, and one 12 %.
"""


def _routed(chosen: ir.Value, weights: ir.Value, extent: Extent, regions: bool) -> Routing:
    found = sort(chosen, extent, regions)
    slots = build.expand(found.slots, (extent.blocks, extent.block_m), [[0, 1]])
    return Routing(slots, found.experts, found.positions, weights, found.valid_blocks, chosen)
