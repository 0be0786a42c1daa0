"""Models of many families compiled as they come, their layers in MX: against the same models in PyTorch.

A difference must be proven to be activations that were rounded to another code: `mxcomp.torch.compare` looks at each
layer by itself, of the program that is run. Experts it compares as a whole, and a code that flips between their layers
is bounded here: by how much it changes the result of all tokens.

That program returns what goes into each layer, so its layers are fused otherwise than those of a user's. Theirs is run
too: what its result may be apart is how far PyTorch's goes when each layer's result is moved by its last bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from zoo import ZOO, build

import mxcomp.torch
from mxcomp.torch.comparison import ULPS
from mxcomp.torch.taps import Call, Shown, Tapped, parted, tapped

LARGEST_RMS_OF_EXPERTS = {torch.float32: 0.01, torch.bfloat16: 0.02}
MOVES = 4
"""How often PyTorch's results are moved at random."""
SAMPLE = ("vit",)
Captured = dict[str, list[tuple[torch.Tensor, ...]]]


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def as_torch(array: np.ndarray) -> torch.Tensor:
    array = np.ascontiguousarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def errors_of_experts(
    model: torch.nn.Module, arguments: Sequence[torch.Tensor], captured: Captured
) -> dict[str, float]:
    """By name of experts, the rms error of what they make of the program's rows, as a share of their result's."""
    left = {name: list(calls) for name, calls in captured.items()}
    errors: dict[str, float] = {}

    def look(call: Call) -> torch.Tensor:
        x, found, *others = left[call.name].pop(0)
        if not isinstance(call.layer, mxcomp.torch.ScaledLinear):
            expected = call.layer.forward(x, *others).reshape(found.shape).double()
            share = (found.double() - expected).square().mean() / expected.square().mean()
            errors[call.name] = max(errors.get(call.name, 0.0), share.sqrt().item())
        return found

    with torch.no_grad(), tapped(model, look):
        model(*arguments)
    return errors


def check(name: str, layers: int, dtype: torch.dtype, is_dynamic: bool, folder: Path, plain_too: bool = True) -> None:
    entry = ZOO[name]
    model = build(name, layers, dtype)
    mxcomp.torch.replace_linears(model, "E4M3", "E4M3")
    first = tuple(each.to(dtype) if each.is_floating_point() else each for each in entry.arguments)
    runs = [first]
    if is_dynamic:
        assert entry.dynamic is not None
        changing = [bool(sizes) for sizes in entry.dynamic]
        runs.append(tuple(each[:, :3] if cut else each for each, cut in zip(first, changing, strict=True)))
    shapes = (entry.dynamic,) if is_dynamic else None
    shown: Shown = []
    wrapped = Tapped(model, lambda found: shown.__setitem__(slice(None), found))
    program = Compiled(wrapped, first, shapes, folder / "tapped")
    plain = Compiled(model, first, shapes, folder / "plain") if plain_too else None
    for arguments in runs:
        (output,), captured = parted(program(*arguments), shown)
        assert captured
        comparison = mxcomp.torch.compare(model, arguments, outputs=[output], captured=captured)
        experts = errors_of_experts(model, arguments, captured)
        with torch.no_grad():
            expected = model(*arguments)
        print(f"{name}, {layers} layers, {dtype}: rms error {rms(output, expected):.1e}, experts {experts}")
        print(comparison.verdict)
        assert not [bug for bug in comparison.bugs if bug.name not in experts], f"{comparison}"
        assert all(error <= LARGEST_RMS_OF_EXPERTS[dtype] for error in experts.values()), experts
        if plain is not None:
            (found,) = plain(*arguments)
            apart, allowed = rms(found, output), moved(model, arguments, expected)
            print(f"without taps: {apart:.1e} from the result with taps, {rms(found, expected):.1e} from PyTorch's")
            print(f"PyTorch's moved by last bits: {allowed:.1e}")
            assert apart <= allowed, "more than last bits and what flips by them"


class Compiled:
    """A program with its parameters in a file, which takes and returns tensors."""

    def __init__(self, model: torch.nn.Module, arguments: Sequence[torch.Tensor], shapes: Any, path: Path) -> None:
        self.program = mxcomp.torch.compile(model, arguments, dynamic_shapes=shapes, parameters=path)
        self.parameters = {path.name: path.with_suffix(".irpa")}

    def __call__(self, *arguments: torch.Tensor) -> list[torch.Tensor]:
        return [*map(as_torch, self.program.run(*map(as_numpy, arguments), parameters=self.parameters))]


def moved(model: torch.nn.Module, arguments: Sequence[Any], expected: torch.Tensor) -> float:
    """How far a result goes, at most, where each layer's is moved by so many units in the last place, up or down."""
    generator = torch.Generator().manual_seed(2)

    def move(call: Call) -> torch.Tensor:
        sides = torch.randint(0, 2, call.y.shape, generator=generator) * 2 - 1
        unit = torch.finfo(call.y.dtype).eps * (call.y.abs() + call.y.float().square().mean(-1, keepdim=True).sqrt())
        return call.y + sides * ULPS[call.y.dtype] * unit

    with torch.no_grad(), tapped(model, move):
        return max(rms(model(*arguments), expected) for _ in range(MOVES))


def rms(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The rms of what two results are apart, as a share of one's."""
    found, expected = found.double(), expected.double()
    return ((found - expected).square().mean() / expected.square().mean()).sqrt().item()


@pytest.mark.parametrize("name", SAMPLE)
def test_sample(name: str, tmp_path: Path) -> None:
    check(name, 1, torch.float32, False, tmp_path, plain_too=False)


@pytest.mark.slow
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", LARGEST_RMS_OF_EXPERTS)
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("name", ZOO)
def test_zoo(name: str, layers: int, dtype: torch.dtype, is_dynamic: bool, tmp_path: Path) -> None:
    if is_dynamic and ZOO[name].dynamic is None:
        pytest.skip("its sizes are fixed")
    check(name, layers, dtype, is_dynamic, tmp_path)
