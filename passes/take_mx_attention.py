"""mxcomp-take-mx-attention: computes attention of MX operands by a kernel of ours.

Before, as `mxcomp.ir.attention` spells it:

    %s = linalg.generic … ins(%q, %k, %q_scales, %k_scales) { … arith.scaling_extf … } -> tensor<2x64x64xf32>
    %x = linalg.generic … ins(%s) { arith.mulf … } -> tensor<2x64x64xf32>          (and the largest of each row)
    %p = linalg.generic … { arith.subf … math.exp2 } -> tensor<2x64x64xf32>
    %w = linalg.generic … ins(%p, …) { … arith.scaling_truncf } -> tensor<128x2x32xf8E4M3FN>       (and scales, a sum)
    %o = linalg.generic … ins(%w, %v, %w_scales, %v_scales) { … } -> tensor<2x64x128xf32>
    %r = linalg.generic … ins(%o, %sums) { arith.divf } -> tensor<2x64x128xf32>

After:

    %ks = linalg.transpose …                          (scales of keys and values in the order in which lanes have them)
    %r = flow.dispatch.region {
      linalg.generic {mxcomp.kernel = "…", iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_attention_…">}
          ins(%q, %q_scales, %k, %ks, %v, %vs)
    }

Elements stay as they are stored. A candidate is a quotient of a scaled matmul behind another one: what it says besides
its operands is read from it, the spelling of that is built, and compared with it operation by operation. What has no
kernel stays as it is spelled, two scaled matmuls, and the report has the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects import func

from mxcomp.formats import element_format
from mxcomp.ir.attention import LINEAR, Form, attention
from mxcomp.matching import same_spelling
from mxcomp.matching.canonical import is_canonical
from mxcomp.mlir import build, graph, notes
from mxcomp.mlir.linalg_ops import is_rounding
from mxcomp.options import Options
from mxcomp.packing import attention_operands, standing
from mxcomp.target import Target
from mxcomp.ukernels.attention_combine import Combine
from mxcomp.ukernels.attention_decode_parameters import MOST_SPLITS
from mxcomp.ukernels.attention_mx import MxAttention
from mxcomp.ukernels.attention_mx_parameters import SIZES
from mxcomp.ukernels.attention_mx_rows import ROWS
from mxcomp.ukernels.builder import MOST_BYTES
from mxcomp.ukernels.conversions import CONVERSIONS

OPTIONS = ("ukernels", "reference")

_MOST_SIZE, _TWO_WAVES = 256, 256
"""Sizes of a key and a value, and of both together where registers of a SIMD are those of two waves."""
_WAVES = ((8, 128), (4, 64), (2, 32), (1, 0))
"""The waves of a workgroup, each with the number of queries of a head above which it is used."""


@dataclass(frozen=True)
class _Attention:
    """An MX attention; `operands` are elements and scales of queries, keys and values."""

    result: ir.Value
    form: Form
    operands: tuple[ir.Value, ...]

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Returns heads of keys in all batches, rows of each, keys with padding, and the sizes of a key and a value."""
        shapes = [ir.RankedTensorType(each.type).shape for each in self.operands[::2]]
        (heads, rows, blocks, block), (_, keys, *_), (_, value_size, *_) = shapes
        return heads, rows, keys, blocks * block, value_size

    def kernel(self, target: Target) -> MxAttention | str:
        """Returns its kernel, or why it has none."""
        heads, rows, stored, size, value_size = self.sizes
        queries = self.form.queries or rows
        qk, _, v = (str(build.element(each)) for each in self.operands[:5:2])
        weights = element_format(self.form.weights).mlir_type
        if (weights, "f32") not in CONVERSIONS:
            return f"weights of {self.form.weights}: expected 4 or 8 bits"
        if max(size, value_size) > _MOST_SIZE or value_size % SIZES:
            return f"sizes {size} and {value_size}: expected at most {_MOST_SIZE}, of values a multiple of {SIZES}"
        if self.form.scale <= 0:
            return "scores are multiplied by a number that is not positive"
        shared, is_causal = rows // queries, self.form.queries is not None
        fitting = [each for each, more in _WAVES if queries > more and (each < 8 or size + value_size <= _TWO_WAVES)]
        kernels = [
            MxAttention(
                heads * shared, queries, shared, size, value_size, min(self.form.keys, stored), stored,
                self.form.scale, is_causal, (qk, v, weights), waves, 2 if queries > ROWS else 1, 1,
                self._result_type, target.xcds, target.lds_bytes, self.form.units, self.form.offset,
            )
            for waves in fitting
        ]  # fmt: skip
        kernels = [each if is_causal else each.split(target.cus, MOST_SPLITS) for each in kernels]
        kernel = next((each for each in kernels if each.workgroups > 1), kernels[-1])
        if max(each.shape[0] for each in kernel.inputs) > MOST_BYTES:
            return f"an operand of more than {MOST_BYTES} bytes"
        return kernel

    @property
    def rounded(self) -> ir.Operation | None:
        """Returns the operation that rounds results to 16 bits, if it is the only reader."""
        user = graph.only_user(self.result.owner.operation)
        return user if user is not None and is_rounding(user) else None

    @property
    def _result_type(self) -> str:
        rounded = self.rounded
        return str(build.element(self.result if rounded is None else rounded.results[0]))


def find(op: ir.Operation) -> _Attention | None:
    """Returns the attention whose result an operation computes."""
    if op.name != "linalg.generic" or [*_body(op)] != ["arith.divf", "linalg.yield"] or len(op.operands) != 3:
        return None
    sums = graph.producer(op.operands[0])
    if sums is None or not _is_batched_matmul(sums):
        return None
    weights, values, _, value_scales, _ = sums.operands
    between = list(graph.producers([weights], lambda op: not _is_batched_matmul(op)))
    sources = (graph.producer(value) for op in between for value in op.operands)
    scores = next((op for op in sources if op is not None and _is_batched_matmul(op)), None)
    form = None if scores is None else _form(scores, build.element(weights))
    if scores is None or form is None:
        return None
    if any("math.roundeven" in _body(op) for op in between):
        form = replace(form, powers=LINEAR)
    queries, keys, query_scales, key_scales, _ = scores.operands
    operands = queries, query_scales, keys, key_scales, values, value_scales
    return _Attention(op.results[0], form, operands) if _is_spelled(op.results[0], operands, form) else None


def _is_spelled(result: ir.Value, operands: tuple[ir.Value, ...], form: Form) -> bool:
    module = ir.Module.create(ir.Location.unknown())
    with ir.Location.unknown(), ir.InsertionPoint(module.body):
        block = func.FuncOp("spelled", ir.FunctionType.get([each.type for each in operands], [])).add_entry_block()
    with ir.Location.unknown(), ir.InsertionPoint(block):
        query, query_scales, key, key_scales, value, value_scales = block.arguments
        template = attention((query, query_scales), (key, key_scales), (value, value_scales), form)
    found = same_spelling.find(result, template)
    return found is not None and [found[each] for each in block.arguments] == list(operands)


def _is_batched_matmul(op: ir.Operation) -> bool:
    return (
        op.name == "linalg.generic"
        and is_canonical(op)
        and build.element(op.results[0]) == ir.F32Type.get()
        and (ir.RankedTensorType(op.results[0].type).rank == 3)
    )


def _operations(op: ir.Operation) -> list[ir.OpView]:
    return list(op.regions[0].blocks[0].operations) if op.name == "linalg.generic" else []


def _body(op: ir.Operation) -> Iterator[str]:
    yield from (view.operation.name for view in _operations(op))


def _form(scores: ir.Operation, weights: ir.Type) -> Form | None:
    """Returns the parameters of what may scale and hide scores, as far as its only operation says them."""
    scaled, shape = graph.only_user(scores), ir.RankedTensorType(scores.results[0].type).shape
    inner = {} if scaled is None else {view.operation.name: view.operation for view in _operations(scaled)}
    scale = _constant(inner["arith.mulf"]) if "arith.mulf" in inner else 1.0
    if scale is None:
        return None
    names = (name for name in ("arith.minui", "arith.cmpi") if name in inner)
    keys = next((found for name in names if (found := _constant(inner[name])) is not None), shape[-1])
    queries = _constant(inner["arith.remui"]) if "arith.remui" in inner else None
    fmt = str(weights)
    return Form(float(scale), int(keys), None if queries is None else int(queries), element_format(fmt).name)


def _constant(op: ir.Operation) -> float | None:
    """Returns the constant among an operation's operands."""
    for value in op.operands:
        if (source := graph.producer(value, "arith.constant")) is not None:
            attribute = source.attributes["value"]
            kind = ir.FloatAttr if isinstance(attribute, ir.FloatAttr) else ir.IntegerAttr
            return kind(attribute).value
    return None


def run(module: ir.Operation, options: Options) -> None:
    """Replaces every MX attention below `module` that has a kernel."""
    entries = []
    for each in [found for op in graph.walk(module, bodies=False) if (found := find(op)) is not None]:
        with each.result.owner.operation.location:
            kernel = _kernel(each, options)
            entries.append(_entry(each, kernel))
            if isinstance(kernel, MxAttention):
                _replace(each, kernel, options.target)
    notes.attend(module, entries)


def _kernel(found: _Attention, options: Options) -> MxAttention | str:
    if not options.has_kernels:
        return "without ukernels"
    kernel = found.kernel(options.target)
    return kernel if isinstance(kernel, str) else kernel.missing(options.target) or kernel


def _entry(found: _Attention, kernel: MxAttention | str) -> dict[str, Any]:
    """Returns the entry for the report."""
    heads, rows, _, size, value_size = found.sizes
    sizes = heads, rows, found.form.keys, size, value_size
    became = {"reason": kernel} if isinstance(kernel, str) else {"ukernel": kernel.name}
    names = ("heads", "queries", "keys", "size", "value_size")
    return notes.outcome(found.result.owner.operation.location, {**dict(zip(names, sizes, strict=True)), **became})


def _replace(found: _Attention, kernel: MxAttention, target: Target) -> None:
    root, rounded = found.result.owner.operation, found.rounded
    replaced = root if rounded is None else rounded
    with ir.InsertionPoint(root):
        operands = attention_operands.operands(found.operands, kernel, target, root)
        result = ir.RankedTensorType(replaced.results[0].type)
        with standing.named(root, "attention", "attention"):
            results = standing.dispatch(kernel, operands)
        if kernel.splits > 1:
            combine = Combine(
                kernel.heads * kernel.queries, kernel.queries, (kernel.waves * kernel.columns, ROWS),
                kernel.value_size, kernel.splits, str(result.element_type),
            )  # fmt: skip
            parts = [build.reshaped(each, kind.shape) for each, kind in zip(results, combine.inputs, strict=True)]
            with standing.named(root, "attention", "combine"):
                results = standing.dispatch(combine, parts)
            whole = build.reshaped(results[0], [kernel.heads, kernel.queries, kernel.value_size])
        else:
            whole = build.reshaped(results[0], [kernel.heads, kernel.tiles * kernel.tile, kernel.value_size])
        kept = build.part(whole, [0, 0, 0], [kernel.heads, kernel.queries, kernel.value_size])
        value = build.reshaped(kept, result.shape)
    replaced.results[0].replace_all_uses_with(value)
    graph.erase_unused([replaced.results[0]])
