"""Linear layers with MX weights in PyTorch, and models with them as MLIR (needs torch: `pip install mxcomp[torch]`).

    mxcomp.torch.replace_linears(model)  # weights E2M1, activations quantised to E2M1
    module = mxcomp.torch.export(model, (x,))
    program = mxcomp.compile(module)

Activations are quantised when the layer runs. On the CPU the layer computes what the compiled program does, on the
elements and scales of `mxcomp.formats`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from iree.compiler import ir

try:
    import torch
    from iree.compiler.extras.fx_importer import FxImporter
except ImportError as error:
    raise ImportError(f"mxcomp.torch needs PyTorch: pip install mxcomp[torch] ({error})") from error

from mxcomp.formats import BLOCK_SIZE, dequantise, element_format, pack_bits, quantise, unpack_bits
from mxcomp.options import Options
from mxcomp.passes import import_torch

_OUR_FRAME = re.compile(rf' *File "{re.escape(__file__)}", [^\n]*\n[^\n]*\n?')
"""A frame of a stack trace, two lines."""


@torch.library.custom_op("mxcomp::scaled_linear", mutates_args=())
def scaled_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    weight_format: str = "E2M1",
    input_format: str = "E2M1",
    mode: str = "even",
) -> torch.Tensor:
    """The product of `x`, quantised to MX, and a transposed MX weight, summed in f32.

    Args:
        x: float32, float16 or bfloat16 [M, K].
        weight: uint8 [N, K * bits / 8], codes without gaps (`mxcomp.formats.pack_bits`).
        weight_scale: uint8 [N, K / 32], E8M0 codes.
        weight_format, input_format: Element formats, see `mxcomp.formats.FORMATS`.
        mode: Scale mode of the activations, see `mxcomp.formats.quantise`.

    Returns:
        [M, N], of x's type. Raises ValueError for a format, mode or shape that does not fit.
    """
    rows = x.detach().float().cpu().numpy()
    lhs = dequantise(*quantise(rows, input_format, mode), input_format)
    codes = unpack_bits(weight.detach().cpu().numpy(), weight_format)
    rhs = dequantise(codes, weight_scale.detach().cpu().numpy(), weight_format)
    return (torch.from_numpy(lhs) @ torch.from_numpy(rhs).T).to(dtype=x.dtype, device=x.device)


@scaled_linear.register_fake
def _shape(
    x: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    weight_format: str = "E2M1",
    input_format: str = "E2M1",
    mode: str = "even",
) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


class ScaledLinear(torch.nn.Module):
    """A linear layer with MX weights: buffers `weight`, `weight_scale` as in `scaled_linear`, and `bias` or None."""

    def __init__(
        self,
        weight: torch.Tensor,
        weight_scale: torch.Tensor,
        bias: torch.Tensor | None = None,
        weight_format: str = "E2M1",
        input_format: str = "E2M1",
        mode: str = "even",
    ) -> None:
        super().__init__()
        self.formats = weight_format, input_format, mode
        self.register_buffer("weight", weight)
        self.register_buffer("weight_scale", weight_scale)
        self.register_buffer("bias", bias)

    @classmethod
    def from_linear(
        cls, linear: torch.nn.Linear, weight_format: str = "E2M1", input_format: str = "E2M1", mode: str = "even"
    ) -> ScaledLinear:
        """Quantises the weights of a layer. Raises ValueError unless its inputs are a multiple of 32."""
        codes, scales = quantise(linear.weight.detach().float().cpu().numpy(), weight_format, mode)
        packed = torch.from_numpy(pack_bits(codes, weight_format))
        bias = None if linear.bias is None else linear.bias.detach()
        return cls(packed, torch.from_numpy(np.ascontiguousarray(scales)), bias, weight_format, input_format, mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., N] from [..., K]."""
        rows = x.reshape(-1, x.shape[-1])
        y = scaled_linear(rows, self.weight, self.weight_scale, *self.formats).reshape(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        weight_format, input_format, mode = self.formats
        n, k = self.weight.shape[0], self.weight_scale.shape[1] * BLOCK_SIZE
        return f"{k} → {n}, weight {element_format(weight_format)}, input {element_format(input_format)}, mode {mode}"


def replace_linears(
    model: torch.nn.Module, weight_format: str = "E2M1", input_format: str = "E2M1", mode: str = "even"
) -> torch.nn.Module:
    """Replaces every `torch.nn.Linear` below `model` by a `ScaledLinear`, in place, and returns the model."""
    for name, child in model.named_children():
        if isinstance(child, torch.nn.Linear):
            setattr(model, name, ScaledLinear.from_linear(child, weight_format, input_format, mode))
        else:
            replace_linears(child, weight_format, input_format, mode)
    return model


def export(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    function: str = "main",
) -> ir.Module:
    """A model as an MLIR module for `mxcomp.compile`; `str` of it is what `mxcomp-compile` takes.

    Args:
        model, args, kwargs, dynamic_shapes: As of `torch.export.export`.
        function: Name of the function in the module.

    Returns:
        A module in torch's dialect, every `scaled_linear` already in linalg. Parameters and buffers are constants.

    Raises InputError for a `scaled_linear` that cannot be compiled, and what `torch.export` raises.
    """
    program = torch.export.export(model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
    for node in program.graph.nodes:  # errors and reports are to name the caller's lines, not those of `ScaledLinear`
        callers = _OUR_FRAME.sub("", node.meta.get("stack_trace") or "")
        if callers.strip():
            node.meta["stack_trace"] = callers
    context = ir.Context()
    context.load_all_available_dialects()  # operations made before their dialect is loaded are malformed
    importer = FxImporter(context=context)
    importer.import_frozen_program(program, func_name=function)
    import_torch.run(importer.module.operation, Options.make())
    importer.module.operation.verify()
    return importer.module
