"""Flips told from bugs: what differs in captured calls is made here, by hand, so that it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import mxcomp.torch
from mxcomp.errors import InputError
from mxcomp.formats import E8M0_BIAS, quantise, unpack_bits
from mxcomp.formats.fused import quantise_packed
from mxcomp.torch import ScaledExperts, ScaledLinear, compare, taps
from mxcomp.torch.taps import Call, tapped

K, N, ROWS = 64, 96, 6
KINDS = [torch.float32, torch.bfloat16]

Calls = dict[str, list[tuple[torch.Tensor, torch.Tensor]]]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.head = torch.nn.Linear(K, N), torch.nn.Linear(N, K, bias=False), torch.nn.Linear(K, N)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x + self.down(torch.nn.functional.silu(self.up(x))))


def model(kind: torch.dtype = torch.float32, fmt: str = "E2M1") -> Any:
    torch.manual_seed(0)
    return mxcomp.torch.replace_linears(Net().to(kind), fmt, fmt).eval()


def inputs(kind: torch.dtype) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(ROWS, K).to(kind)


def calls(net: torch.nn.Module, x: torch.Tensor, change: Callable[[Call], Call] = lambda call: call) -> Any:
    """What another implementation would show, which makes of each call what `change` says; and its result."""
    found: Calls = {}

    def hook(call: Call) -> torch.Tensor:
        changed = change(call)
        found.setdefault(call.name, []).append((changed.x.clone(), changed.y.clone(), *changed.others))
        return changed.y

    with torch.no_grad(), tapped(net, hook):
        result = net(x)
    return found, [result]


def compared(net: torch.nn.Module, x: torch.Tensor, change: Callable[[Call], Call]) -> mxcomp.torch.Comparison:
    captured, outputs = calls(net, x, change)
    return compare(net, (x,), captured=captured, outputs=outputs)


def boundary(x: torch.Tensor, fmt: str = "E2M1") -> tuple[int, int]:
    """Where in [rows, K] the next number of this type has another code, at the same scale; the nearest to one if none
    is as near as that."""
    values = x.float().numpy()
    _, scales = quantise(values, fmt)
    scaled = np.abs(values) * np.exp2(E8M0_BIAS - scales.astype(np.float32)).repeat(32, 1)
    middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
    away = np.abs(scaled[..., None] - middles).min(-1) / np.maximum(scaled, 0.1)
    row, column = np.unravel_index(np.argmin(away), away.shape)
    return int(row), int(column)


def flipped(name: str, shown: bool) -> Callable[[Call], Call]:
    """At a layer, an activation that is next to a boundary comes out on its other side: shown so, or within the kernel.

    It is put there first: all implementations have it next to it, PyTorch too.
    """

    def change(call: Call) -> Call:
        if call.name != name:
            return call
        row, column = boundary(call.x)
        x = call.x.clone()
        x[row, column] = other_side(call.x, row, column)
        y = call.layer.forward(x)
        return Call(name, call.layer, x if shown else call.x, y)

    return change


def other_side(x: torch.Tensor, row: int, column: int) -> torch.Tensor:
    """The nearest number with another code."""
    first = quantise(x.float().numpy(), "E2M1")[0][row, column]
    for direction in (torch.inf, -torch.inf):
        moved = x.clone()
        for _ in range(4):
            moved[row, column] = torch.nextafter(moved[row, column], torch.tensor(direction, dtype=x.dtype))
            if quantise(moved.float().numpy(), "E2M1")[0][row, column] != first:
                return moved[row, column]
    raise AssertionError("no boundary is near")


def near_boundaries(kind: torch.dtype) -> torch.Tensor:
    """Inputs of which one lies one step below the boundary between two codes."""
    x = inputs(kind)
    x[2, :32] = torch.linspace(-5.9, 5.9, 32).to(kind)  # of scale 1
    x[2, 7] = torch.nextafter(torch.tensor(2.5, dtype=kind), torch.tensor(0.0, dtype=kind))
    return x


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("fmt", ["E2M1", "E4M3", "bf16"])
def test_the_same(kind: torch.dtype, fmt: str) -> None:
    torch.manual_seed(0)
    net = mxcomp.torch.replace_linears(Net().to(kind), "E2M1", fmt).eval()
    found = compared(net, inputs(kind), lambda call: call)
    assert found.ok and not found.flips and len(found.layers) == 3
    assert found.verdict == "the same: no code differs in 3 calls of layers" and "up" in str(found)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shown", [True, False], ids=["shown", "hidden"])
def test_a_flip(kind: torch.dtype, shown: bool) -> None:
    """One code flips in the first layer; the others see what it makes of that. Whether the capture shows the activation
    on the other side, or only the result does."""
    net, x = model(kind), near_boundaries(kind)
    found = compared(net, x, flipped("up", shown))
    assert found.ok, found
    (flips,) = found.flips
    assert (flips.name, flips.codes, flips.scales, flips.decoded) == ("up", int(shown), 0, int(not shown))
    assert found.verdict.startswith("flips only: ")


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shown", [True, False], ids=["shown", "hidden"])
def test_a_scale_that_flips(kind: torch.dtype, shown: bool) -> None:
    """Of a block whose largest magnitude is next to a boundary between scales; most of its codes change with it."""
    net, x = model(kind), inputs(kind)
    x[3, 32:] = (x[3, 32:] / x[3, 32:].abs().max()).to(kind)
    largest = torch.nextafter(torch.tensor(1.75, dtype=kind), torch.tensor(0.0, dtype=kind))
    x[3, 40] = largest

    def change(call: Call) -> Call:
        if call.name != "up":
            return call
        moved = call.x.clone()
        moved[3, 40] = 1.75
        return Call(call.name, call.layer, moved if shown else call.x, call.layer.forward(moved))

    found = compared(net, x, change)
    assert found.ok, found
    (flips,) = found.flips
    assert (flips.scales, flips.decoded) == (int(shown), int(not shown))


def of_other_weights(change: Callable[[ScaledLinear], None], name: str = "down") -> Callable[[Call], Call]:
    """A layer whose weights are not those of the model."""

    def changed(call: Call) -> Call:
        if call.name != name:
            return call
        layer = ScaledLinear(call.layer.elements.clone(), call.layer.weight_scale.clone(), call.layer.bias)
        layer.formats = call.layer.formats
        change(layer)
        return Call(name, call.layer, call.x, layer(call.x))

    return changed


def wrong_scale(layer: ScaledLinear) -> None:
    layer.weight_scale[11, 1] += 1


def swapped_nibble(layer: ScaledLinear) -> None:
    row = layer.elements[11]
    place = int(np.argmax([(byte >> 4) != (byte & 15) and byte & 7 > 4 for byte in row.tolist()]))
    row[place] = int(row[place]) >> 4 | (int(row[place]) & 15) << 4


def wrong_row(layer: ScaledLinear) -> None:
    layer.elements[11] = layer.elements[12]
    layer.weight_scale[11] = layer.weight_scale[12]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("bug", [wrong_scale, swapped_nibble, wrong_row])
def test_bugs_of_weights(bug: Callable[[ScaledLinear], None], kind: torch.dtype) -> None:
    """They are named by module and row, and nothing behind them is."""
    found = compared(model(kind), inputs(kind), of_other_weights(bug))
    assert not found.ok
    (only,) = found.bugs
    assert only.name == "down" and "columns 11 (rows of the weight)" in only.reason
    assert found.verdict.startswith("bug at down: ")


def shifted_rows(call: Call) -> Call:
    return Call(call.name, call.layer, call.x, call.y.roll(1, 0)) if call.name == "up" else call


def wrong_activation_scale(call: Call) -> Call:
    """Of one block of one row: as a kernel that reads another row's scale there."""
    if call.name != "up":
        return call
    x = call.x.clone()
    x[4, 32:] *= 2
    return Call(call.name, call.layer, call.x, call.layer.forward(x))


def nan(call: Call) -> Call:
    y = call.y.clone()
    y[1, 2] = torch.nan
    return Call(call.name, call.layer, call.x, y) if call.name == "up" else call


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("bug", [shifted_rows, wrong_activation_scale, nan])
def test_bugs_of_kernels(bug: Callable[[Call], Call], kind: torch.dtype) -> None:
    found = compared(model(kind), inputs(kind), bug)
    assert {each.name for each in found.bugs} == {"up"} and "no product" in found.verdict


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bugs_between_layers(kind: torch.dtype) -> None:
    """Activations that are not what the layers before make, by more than last bits: the layer that reads them is named,
    and those before it."""

    def change(call: Call) -> Call:
        x = call.x * 1.2 if call.name == "down" else call.x
        return Call(call.name, call.layer, x, call.layer.forward(x))

    found = compared(model(kind), inputs(kind), change)
    (only,) = found.bugs
    assert only.name == "down" and "the program's results of up give" in only.reason
    captured, (result,) = calls(model(kind), inputs(kind))
    found = compare(model(kind), (inputs(kind),), captured=captured, outputs=[result * 1.2])
    assert [each.name for each in found.bugs] == ["outputs"]
    wrong = result.clone()
    wrong[2, 7] *= 1.2
    (only,) = compare(model(kind), (inputs(kind),), captured=captured, outputs=[wrong]).bugs
    assert only.name == "outputs" and only.reason.endswith("give in PyTorch: columns 7, rows 2")


class Routed(torch.nn.Module):
    """Experts in front of a layer."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(2)
        made = [
            tuple(map(torch.from_numpy, quantise_packed(rng.standard_normal((2, n, K), np.float32), "E2M1")))
            for n in (2 * K, K)
        ]
        biases = torch.zeros(2, 2 * K), torch.zeros(2, K)
        self.experts = ScaledExperts(made[0], biases[0], made[1], biases[1], 1.702, 7.0)
        self.fc = ScaledLinear.from_linear(torch.nn.Linear(K, N))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = torch.arange(len(x))[:, None] % 2
        return self.fc(self.experts(x, chosen=chosen, weights=torch.ones(chosen.shape)))


def test_experts() -> None:
    """They are compared as a whole, and what is behind them is computed from the program's."""
    torch.manual_seed(0)
    net, x = Routed(), inputs(torch.float32)
    assert compared(net, x, lambda call: call).ok

    def change(call: Call) -> Call:
        y = call.y.clone()
        y[3] *= 1.01
        return Call(call.name, call.layer, call.x, y) if call.name == "experts" else call

    (bug,) = compared(net, x, change).bugs
    assert bug.name == "experts" and "tokens 3 differ" in bug.reason


class Adding(torch.nn.Module):
    """A layer to whose result something is added in place, as Llama 4 does."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = torch.nn.Linear(K, K), torch.nn.Linear(K, N)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.fc(x).add_(x))


def test_results_that_are_written_to() -> None:
    """Taps show a result as the layer made it, and what was captured stays as it is."""
    torch.manual_seed(0)
    net, x = mxcomp.torch.replace_linears(Adding()).eval(), inputs(torch.float32)
    told: list[tuple[str, int]] = []
    with torch.no_grad():
        results = taps.Tapped(net, told.extend)(x)
    outputs, captured = taps.parted(results, told)
    assert torch.equal(captured["fc"][0][1], net.fc(x).detach())
    for _ in range(2):
        found = compare(net, (x,), captured=captured, outputs=outputs)
        assert found.ok, found


@pytest.mark.parametrize(("share", "bugs"), [(1.0, []), (1.1, ["experts"])])
def test_other_experts(share: float, bugs: list[str]) -> None:
    """A program may choose another one of experts that PyTorch gives equal shares; by other shares it is a bug."""
    torch.manual_seed(0)

    def change(call: Call) -> Call:
        if call.name != "experts":
            return call
        chosen, shares = (each.clone() for each in call.others)
        chosen[3], shares[3] = 1 - chosen[3], share
        return Call(call.name, call.layer, call.x, call.layer.forward(call.x, chosen, shares), (chosen, shares))

    found = compared(Routed(), inputs(torch.float32), change)
    assert [bug.name for bug in found.bugs] == bugs, found
    assert all("the shares of its experts differ" in bug.reason for bug in found.bugs)


def test_captures_that_do_not_belong() -> None:
    net, x = model(), inputs(torch.float32)
    captured, _ = calls(net, x)
    for change, message in (
        ({"up": []}, "too few calls of 'up'"),
        ({"up": captured["down"]}, r"'up' has \[6, 96\] → \[6, 64\], in PyTorch"),
        ({"head": 2 * captured["head"]}, "1 calls of 'head' that PyTorch does not make"),
    ):
        with pytest.raises(InputError, match=message):
            compare(net, (x,), captured=captured | change)
    with pytest.raises(InputError, match="no layer with MX weights"):
        compare(torch.nn.Linear(K, N), (x,))
    with pytest.raises(InputError, match="2 outputs, in PyTorch 1"):
        compare(net, (x,), captured=captured, outputs=[x, x])


@pytest.mark.slow  # compiles twice, and runs on the simulator
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_compiled(kind: torch.dtype) -> None:
    net, x = model(kind), inputs(kind)
    found = compare(net, (x,), program=mxcomp.torch.compile(net, (x,)))
    assert found.ok and len(found.layers) == 3, found


def test_codes_are_those_of_the_layer() -> None:
    """What the tests above flip is a code of the layer's own quantiser."""
    x = near_boundaries(torch.float32)
    row, column = boundary(x)
    assert quantise(x.numpy(), "E2M1")[0].shape == x.shape and (row, column) == (2, 7)
    assert unpack_bits(model().up.elements.numpy(), "E2M1").shape == (N, K)


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = ScaledLinear.from_linear(torch.nn.Linear(K, N))

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.fc(x) + other


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("keyword", [False, True])
def test_dynamic_sizes(named: bool, keyword: bool) -> None:
    """They are those of the model's arguments, by place or by name."""
    rows = torch.export.Dim("rows", min=2, max=64)
    x, other = torch.zeros(4, K), torch.zeros(4, N)
    args, kwargs = ((x,), {"other": other}) if keyword else ((x, other), {})
    given = {"x": {0: rows}, "other": {0: rows}} if named else ({0: rows}, {0: rows})
    wrapped = taps.Tapped(Two(), lambda names: None)
    with torch.no_grad():
        program = torch.export.export(wrapped, args, kwargs, dynamic_shapes=given, strict=False)
        x, other = torch.ones(7, K), torch.ones(7, N)
        y, *_ = program.module()(x, **{"other": other}) if keyword else program.module()(x, other)
    assert y.shape == (7, N)
