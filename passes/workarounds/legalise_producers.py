"""mxcomp-legalise-producers: computes producers in separate kernels where IREE would clone them into kernels that fail.

IREE clones fills, constants, casts to wider floats, gathers and slices into the dispatches that read them
(`isCloneableIntoDispatchOp`). What is written over by places that are calculated cannot be tiled with its kernel: it
would be written once for all workgroups ("write affecting operations on global resources are restricted to workgroup
distributed contexts"), be no buffer ("failed to bufferize op"), or be put into memory that a workgroup shares, in a
race or without a bound. IREE sees to it for scatter's fills and insert_slice alone (`isUnfusableInit`,
iree-org/iree#24214): map_store has not the interface that it asks for.

Before:

    %f = linalg.fill ins(%c : f32) outs(%e : tensor<17x64xf32>) -> tensor<17x64xf32>
    %r = iree_linalg_ext.map_store %x into %f { … } : tensor<17x64xf32> into tensor<17x64xf32> -> tensor<17x64xf32>

After:

    %f = linalg.fill ins(%c : f32) outs(%e : tensor<17x64xf32>) -> tensor<17x64xf32>
    %b = util.optimization_barrier %f : tensor<17x64xf32>
    %r = iree_linalg_ext.map_store %x into %b { … } : tensor<17x64xf32> into tensor<17x64xf32> -> tensor<17x64xf32>

Likewise what a map_load takes its elements from (it writes over an empty tensor, as it writes all of it), parts of
tensors that a scatter, a scan or a Fourier transform writes over, and parts and gathers that are sorted. What a scatter
scatters is not gathered in its own kernel, which then takes wrong rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.mlir import build, graph

_SLICE, _GATHER, _EMPTY = "tensor.extract_slice", "iree_linalg_ext.gather", "tensor.empty"
_LOAD = "iree_linalg_ext.map_load"
_ALL = ("linalg.", "tensor.", "arith.", "iree_linalg_ext.", "iree_tensor_ext.")


@dataclass(frozen=True)
class _Rule:
    """Operands (none: all) that must not be computed by operations whose names begin with these prefixes."""

    operands: tuple[int, ...]
    producers: tuple[str, ...]


_RULES = {
    "iree_linalg_ext.map_store": [_Rule((1,), _ALL)],
    _LOAD: [_Rule((0, 1), _ALL)],
    "iree_linalg_ext.scatter": [_Rule((-1,), (_SLICE,)), _Rule((0,), (_GATHER,))],
    "iree_linalg_ext.scan": [_Rule((-2, -1), (_SLICE,))],
    "iree_linalg_ext.fft": [_Rule((-2, -1), (_SLICE,))],
    "iree_linalg_ext.sort": [_Rule((), (_SLICE, _GATHER))],
}


def repeated(op: ir.Operation) -> list[int]:
    """Returns the operands of an operation that IREE would compute in its kernel, and must not."""
    count = len(op.operands)
    return sorted(
        {
            i % count
            for rule in _RULES.get(op.name, ())
            for i in rule.operands or range(count)
            if _is_made_by(op.operands[i], rule.producers)
        }
    )


def _is_made_by(value: ir.Value, producers: tuple[str, ...]) -> bool:
    op = graph.producer(graph.look_through_views(value))
    return op is not None and op.name != _EMPTY and op.name.startswith(producers)


def run(module: ir.Operation) -> None:
    """Rewrites operations outside of dispatches below `module`."""
    graph.rewrite(module, repeated, _compute_apart, outside=True)


def _compute_apart(op: ir.Operation) -> None:
    for i in repeated(op):
        value = op.operands[i]
        is_filled = (op.name, i) == (_LOAD, 1)
        op.operands[i] = build.empty(value.type, build.dynamic_sizes(value)) if is_filled else build.barrier(value)
