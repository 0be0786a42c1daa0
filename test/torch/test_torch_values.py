"""What models find that ask a layer with MX weights for them: numbers, of the type that the layer had."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch

import mxcomp.torch
from mxcomp.errors import InputError
from mxcomp.formats import dequantise, unpack_bits
from mxcomp.torch import ScaledLinear, scaled_linear

K, N = 64, 32


def layer(fmt: str = "E2M1", kind: torch.dtype = torch.float32) -> ScaledLinear:
    torch.manual_seed(0)
    linear = torch.nn.Linear(K, N)
    linear.weight.data *= torch.exp2(torch.randint(-140, 100, (N, 1)).float())
    return ScaledLinear.from_linear(linear.to(kind), fmt)


@pytest.mark.parametrize("fmt", ["E2M1", "E2M3", "E3M2", "E4M3", "E5M2"])
def test_numbers(fmt: str) -> None:
    made = layer(fmt)
    expected = dequantise(unpack_bits(made.elements.numpy(), fmt), made.weight_scale.numpy(), fmt)
    np.testing.assert_array_equal(made.weight.clone().numpy().view(np.int32), expected.view(np.int32))
    assert isinstance(made.weight, torch.Tensor) and made.weight.shape == (N, K)


def test_type_and_place() -> None:
    """They follow the layer, as those of a parameter do; bytes stay bytes, and are what a state_dict has."""
    made = layer(kind=torch.float16)
    assert (made.weight.dtype, made.weight.device.type) == (torch.float16, "cpu")
    moved = copy.deepcopy(made).to(torch.bfloat16)
    assert (moved.weight.dtype, moved.bias.dtype, moved.elements.dtype) == (torch.bfloat16,) * 2 + (torch.uint8,)
    assert copy.deepcopy(made).to("meta").weight.device.type == "meta"
    assert list(made.state_dict()) == ["weight", "weight_scale", "bias"]
    for assign in (False, True):  # what was saved before is read
        other = ScaledLinear.from_linear(torch.nn.Linear(K, N))
        other.load_state_dict(made.state_dict(), assign=assign)
        assert torch.equal(other.elements, made.elements) and torch.equal(other.weight_scale, made.weight_scale)


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.weight.div_(2),
        lambda made: made.weight.data.normal_(),
        lambda made: torch.nn.init.zeros_(made.weight),
        lambda made: setattr(made, "weight", torch.nn.Parameter(torch.zeros(N, K))),
    ],
)
def test_changes_are_refused(change: Callable[[ScaledLinear], object]) -> None:
    made = layer()
    before = made.weight.clone()
    with pytest.raises(InputError, match=r"weights.* MX.* filter= of replace_linears") as caught:
        change(made)
    assert "\n" not in str(caught.value) and torch.equal(made.weight.clone(), before)


def test_integers_are_refused() -> None:
    made = layer()
    x = torch.ones(3, K, dtype=torch.uint8)
    for each in (x, x.to("meta")):
        with pytest.raises(InputError, match=r"activations of torch\.uint8 for MX weights: expected float32"):
            scaled_linear(each, made.elements.to(each.device), made.weight_scale.to(each.device))


class Casting(torch.nn.Module):
    """What T5's feed-forward layer does, and a product with the weights themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(K, N), torch.nn.Linear(N, K)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.up(x)
        if hidden.dtype != self.down.weight.dtype:
            hidden = hidden.to(self.down.weight.dtype)
        return self.down(hidden) + torch.nn.functional.linear(x, self.up.weight).sum(-1, keepdim=True)


def test_a_model_that_casts() -> None:
    """It stays near, and is compiled."""
    torch.manual_seed(1)
    net, x = Casting(), torch.randn(5, K)
    with torch.no_grad():
        expected = net(x)
        mxcomp.torch.replace_linears(net, "E4M3", "E4M3", "rceil")
        assert ((net(x) - expected).norm() / expected.norm()).item() < 0.1
    assert len(mxcomp.torch.compile(net, (x,), compile_to="input").report.matmuls) == 2


@pytest.mark.slow  # runs on the simulator
def test_a_model_that_casts_compiled() -> None:
    torch.manual_seed(1)
    net, x = mxcomp.torch.replace_linears(Casting()), torch.randn(5, K)
    (found,) = mxcomp.torch.compile(net, (x,)).run(x.numpy())
    np.testing.assert_allclose(found, net(x).detach().numpy(), atol=1e-5)


def test_hooks_stay() -> None:
    """What a user calls before and after a linear layer is called around the layer with MX weights, until removed."""
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 64)).eval(), torch.randn(3, 64)
    model[0].register_forward_pre_hook(lambda _, args, kwargs: ((3 * args[0],), kwargs), with_kwargs=True)
    handle = model[1].register_forward_hook(lambda layer, args, y: y + 100)
    expected = model(x)
    mxcomp.torch.replace_linears(model, "E4M3", "bf16")
    torch.testing.assert_close(model(x), expected, atol=0.3, rtol=0)
    torch.testing.assert_close(model[1](model[0](x)), model(x))
    handle.remove()
    torch.testing.assert_close(model(x), expected - 100, atol=0.3, rtol=0)


def test_encoder_layers_call_their_linear_layers() -> None:
    """With plain weights, and without gradients, PyTorch's encoder layer calls one kernel, which quantises nothing."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    mxcomp.torch.replace_linears(layer, "E2M1", "E2M1")
    x = torch.randn(2, 5, 64)
    expected = layer(x)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected)
