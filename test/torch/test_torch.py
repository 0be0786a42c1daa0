"""Models exported from PyTorch run on the simulated device like on the CPU."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import mxcomp
from mxcomp.errors import InputError
from mxcomp.formats import dequantise, quantise, unpack_bits
from mxcomp.torch import ScaledLinear, export, replace_linears, scaled_linear

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "04_pytorch.py"))
MODEL, HIDDEN, TOKENS = EXAMPLE["MODEL"], EXAMPLE["HIDDEN"], EXAMPLE["TOKENS"]


def block() -> tuple[torch.nn.Module, torch.Tensor]:
    """The model of the example, and its input."""
    torch.manual_seed(0)
    return replace_linears(EXAMPLE["Block"]()), torch.randn(1, TOKENS, MODEL)


def test_report_of_a_transformer_block() -> None:
    model, x = block()
    program = mxcomp.compile(export(model, (x,)), compile_to="input")
    sizes = [(matmul.m, matmul.n, matmul.k) for matmul in program.report.matmuls]
    assert sizes == [(TOKENS, MODEL, MODEL)] * 4 + [(TOKENS, HIDDEN, MODEL)] * 2 + [(TOKENS, MODEL, HIDDEN)]
    for matmul in program.report.matmuls:
        assert matmul.reason is None and matmul.ukernel is not None
        assert "04_pytorch.py" in matmul.location


@pytest.mark.slow  # the example itself, which runs by default, checks its numbers
def test_transformer_block() -> None:
    model, x = block()
    program = mxcomp.compile(export(model, (x,)))
    (result,) = program.run(x.numpy())
    expected = model(x).detach().numpy()
    change = np.abs(expected - x.numpy()).max()  # what the block adds to its input
    # Rounding differences of the norms, softmax and silu may move a few activations to the next element, which changes
    # the results of their tokens: half a step of E2M1 is 1/8 of the largest of its block. All else is the same.
    difference = np.abs(result - expected)[0] / change
    assert difference.max() <= 1 / 8
    assert np.median(difference, axis=0).max() <= 1e-5
    assert change > 0.1


@pytest.mark.parametrize(
    ("weight", "activations", "mode", "kind"),
    [
        ("E2M1", "E4M3", "floor", torch.bfloat16),
        pytest.param("E2M3", "E2M1", "rceil", torch.float32, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_linear(weight: str, activations: str, mode: str, kind: torch.dtype) -> None:
    """With a bias and a dynamic number of rows."""
    torch.manual_seed(1)
    model = ScaledLinear.from_linear(torch.nn.Linear(128, 96), weight, activations, mode).to(kind)
    rows = torch.export.Dim("rows", min=2, max=512)
    program = mxcomp.compile(export(model, (torch.randn(4, 128, dtype=kind),), dynamic_shapes=({0: rows},)))
    assert [matmul.m for matmul in program.report.matmuls] == [None]
    x = torch.randn(37, 128, dtype=kind)
    (result,) = program.run(_numpy(x))
    difference = result.astype(np.float64) - model(x).double().numpy()
    assert np.abs(difference).max() <= 2.0 ** (-7 if kind == torch.bfloat16 else -20) * np.abs(result).max()


def _numpy(x: torch.Tensor) -> np.ndarray:
    if x.dtype != torch.bfloat16:
        return x.numpy()
    import ml_dtypes

    return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def test_reference() -> None:
    """The operator on the CPU, against float64 NumPy."""
    torch.manual_seed(2)
    model = ScaledLinear.from_linear(torch.nn.Linear(64, 32), "E3M2", "E5M2", "ceil")
    x = torch.randn(2, 3, 64)
    codes = unpack_bits(model.elements.numpy(), "E3M2")
    weight = dequantise(codes, model.weight_scale.numpy(), "E3M2", dtype=np.float64)
    rows = dequantise(*quantise(x.numpy(), "E5M2", "ceil"), "E5M2", dtype=np.float64)
    np.testing.assert_allclose(model(x).numpy(), rows @ weight.T + model.bias.double().numpy(), atol=1e-5)
    assert "64 → 32" in str(model)


def test_operator_is_well_formed() -> None:
    model = ScaledLinear.from_linear(torch.nn.Linear(64, 32))
    torch.library.opcheck(scaled_linear, (torch.randn(3, 64), model.elements, model.weight_scale))


def test_what_cannot_be_compiled_says_why() -> None:
    model = ScaledLinear.from_linear(torch.nn.Linear(64, 32))
    model.formats = ("E2M1", "E2M1", "nearest")
    with pytest.raises(InputError, match="mode 'nearest': expected one of floor"):
        export(model, (torch.randn(3, 64),))
