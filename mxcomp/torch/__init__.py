"""Linear layers with MX weights in PyTorch, and models with them as MLIR (needs torch: `pip install mxcomp[torch]`).

    mxcomp.torch.replace_linears(model)  # weights E2M1, activations quantised to E2M1
    program = mxcomp.torch.compile(model, (x,), parameters="model")  # writes model.irpa
    (y,) = program.run(x.numpy(), parameters={"model": "model.irpa"})

    module = mxcomp.torch.export(model, (x,))  # or as MLIR, weights as constants
    program = mxcomp.compile(module)

Activations are quantised when the layer runs. On the CPU the layer computes what the compiled program does, on the
elements and scales of `mxcomp.formats`. Models that torchao quantised to MX are taken as they are; `load` reads
published checkpoints. docs/howto/pytorch.md has all of it.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401 (what follows needs it)
    from iree.compiler.extras import fx_importer as _fx_importer  # noqa: F401
except ImportError as error:
    raise ImportError(f"mxcomp.torch needs PyTorch: pip install mxcomp[torch] ({error})") from error

from mxcomp.torch.blocks import dequantise, quantise
from mxcomp.torch.comparison import Comparison, compare
from mxcomp.torch.experts import ScaledExperts
from mxcomp.torch.exporting import compile, export
from mxcomp.torch.floats import left_in_floats
from mxcomp.torch.linear import ScaledLinear, replace_linears
from mxcomp.torch.loading import load
from mxcomp.torch.mx_attention import mx_attention
from mxcomp.torch.operators import scaled_linear

__all__ = [
    "Comparison",
    "ScaledExperts",
    "ScaledLinear",
    "compare",
    "compile",
    "dequantise",
    "export",
    "left_in_floats",
    "load",
    "mx_attention",
    "quantise",
    "replace_linears",
    "scaled_linear",
]
