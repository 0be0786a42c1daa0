"""mxcomp-legalise-steps: removes the step of a slice along a dimension of which it takes one element.

The step says nothing there, but IREE fails over it.

    tensor.extract_slice %x[0, 1] [4, 1] [1, 2]   →   tensor.extract_slice %x[0, 1] [4, 1] [1, 1]
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build, graph


def run(module: ir.Operation) -> None:
    """Rewrites slices below `module`."""
    for op in graph.walk(module, bodies=False):
        if op.name == "tensor.extract_slice":
            op.attributes["static_strides"] = ir.DenseI64ArrayAttr.get(_needed_steps(op))


def has_idle_steps(slicing: ir.Operation) -> bool:
    """Returns whether a slice has a step along a dimension of which it takes one element."""
    return list(slicing.opview.static_strides) != _needed_steps(slicing)


def _needed_steps(slicing: ir.Operation) -> list[int]:
    sizes, steps = slicing.opview.static_sizes, slicing.opview.static_strides
    return [1 if size == 1 and step != build.DYNAMIC else step for size, step in zip(sizes, steps, strict=True)]
