"""Compares a compiled program with its model in PyTorch, layer by layer, and tells flipped codes from bugs.

A model with quantised activations magnifies the last bits: where an activation lies next to a boundary between two
codes, two right programs may round it to different ones, and from there on everything differs a little. Results alone
cannot tell that from a bug. Here each layer is looked at by itself: PyTorch computes it from what the *program* gave
for the layers before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from mxcomp.compiler import Program
from mxcomp.errors import InputError
from mxcomp.ir.quantisation import UNQUANTISED
from mxcomp.torch import exporting, operators
from mxcomp.torch.flips import Product, Quantiser
from mxcomp.torch.linear import ScaledLinear
from mxcomp.torch.taps import LAYERS, Call, Shown, Tapped, parted, tapped, tensors
from mxcomp.torch.values import array

OUTPUTS = "outputs"
"""The name of the model's results in place of a module's name."""

ULPS = {torch.float32: 16.0, torch.float16: 1.0, torch.bfloat16: 1.0}
"""The largest difference of activations of two correct programs, in units in the last place of their type.

In f32 PyTorch's own functions are the most of it: its GELU errs by up to 9 units in the last place of 1, and behind its
convolutions and a norm there were 14.
"""

_UNTAPPED = f"{OUTPUTS} of the program without taps (with captured= of that program a flip of its own can be told)"

_SUMS = 8
"""The factor by which the tolerance of results and shares of experts is larger, as they are several sums."""
_ROUTING = 2
"""The number of operands of experts besides rows: the chosen experts of each token, and their shares."""

Captured = Mapping[str, Sequence[tuple[torch.Tensor, ...]]]


@dataclass(frozen=True)
class Flips:
    """The number of codes and scales of one call of a layer in which the program differs from PyTorch.

    `ulps` is the largest difference of an activation, in units in the last place of its type at its magnitude plus that
    of its row, and `allowed` the largest that is no bug. Of `rows` rows `decoded` have a result of other codes than
    those of the activations that the program shows, which flips explain.
    """

    name: str
    codes: int
    scales: int
    count: int
    ulps: float
    allowed: float
    rows: int
    decoded: int


@dataclass(frozen=True)
class Bug:
    """A difference that no flip explains, and its module."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"bug at {self.name}: {self.reason}"


@dataclass(frozen=True)
class Comparison:
    """The findings of each call of a layer, and the verdict."""

    layers: tuple[Flips, ...]
    bugs: tuple[Bug, ...]

    @property
    def ok(self) -> bool:
        """Whether only flips and last bits differ."""
        return not self.bugs

    @property
    def flips(self) -> tuple[Flips, ...]:
        """The calls of layers that have flips."""
        return tuple(each for each in self.layers if each.codes or each.scales or each.decoded)

    @property
    def verdict(self) -> str:
        """The verdict in one line."""
        if self.bugs:
            return "; ".join(map(str, self.bugs))
        codes, scales = (sum(getattr(each, what) for each in self.layers) for what in ("codes", "scales"))
        if not self.flips:
            return f"the same: no code differs in {len(self.layers)} calls of layers"
        where = f"in {len(self.flips)} of {len(self.layers)} calls of layers"
        within = max(each.allowed for each in self.flips)
        return f"flips only: {codes} codes and {scales} scales {where}, each within {within:g} ulps of a boundary"

    def __str__(self) -> str:
        table = Table("layer", "codes", "scales", "of codes", "ulps", "rows with other codes", title=self.verdict)
        for each in self.layers:
            row = each.codes, each.scales, each.count, f"{each.ulps:.2g}", f"{each.decoded} of {each.rows}"
            table.add_row(each.name, *map(str, row))
        console = Console(width=120, color_system=None)
        with console.capture() as capture:
            console.print(table)
        return capture.get()


def compare(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    program: Program | None = None,
    parameters: Mapping[str, str | Path] | None = None,
    outputs: Sequence[Any] | None = None,
    captured: Captured | None = None,
    dynamic_shapes: Any = None,
    ulps: Mapping[torch.dtype, float] = ULPS,
    **options: Any,
) -> Comparison:
    """Compares a compiled model with PyTorch, call by call of its layers with MX weights.

    The model is compiled with taps, which return what goes into each layer with MX weights and what comes out, and run
    on the simulated GPU; PyTorch then computes the model with each layer's result replaced by the program's, so that
    nothing adds up, and each difference is next to its cause. Of each call:

    - activations agree to a few units in the last place of their type, at their magnitude plus the mean of their row;
    - codes and scales that differ are those of activations with a boundary within that distance;
    - the result is the product of the program's own codes with the weights, to the rounding of f32 sums and of its
      type; or of codes of which some have flipped inside of the kernel, if one choice of flips explains all columns.

    Args:
        model, args, kwargs, dynamic_shapes: As of `compile`; arguments are tensors.
        program: Compiled from the model without taps: it is run (with its files of `parameters`), and its outputs are
            compared with those of the program with taps, which has the same layers in other fusions.
        outputs: In place of `program`: what any implementation returned.
        ulps: How many, by type. f32 is what sums are made in; a narrower type is what they are rounded to.
        captured: In place of taps: (rows, result) of each call of a layer, by its name, from any implementation; of
            experts also what was chosen for each row, and the shares.
        options: Of `mxcomp.compile`, for the program with taps.

    Raises InputError for a model without a `ScaledLinear`, and for captures that do not belong to it.
    """
    if not any(isinstance(module, LAYERS) for module in model.modules()):
        raise InputError("the model has no layer with MX weights to compare: expected mxcomp.torch.replace_linears")
    found = outputs
    if captured is None:
        found, captured = _run_with_taps(model, args, kwargs, dynamic_shapes, options)
    checks = _Checks(captured, ulps)
    with torch.no_grad(), tapped(model, checks.call):
        expected = tensors(model(*args, **dict(kwargs or {})))
    checks.end()
    if found is not None:
        checks.outputs([_tensor(each) for each in found], expected, OUTPUTS)
    if program is not None:
        arrays = [array(each) for each in tensors((tuple(args), dict(kwargs or {})))]
        outputs = program.run(*arrays, parameters=parameters)
    if outputs is not None and outputs is not found:
        checks.outputs([_tensor(each) for each in outputs], expected, _UNTAPPED)
    return Comparison(tuple(checks.layers), tuple(checks.bugs))


def _run_with_taps(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Any, dynamic_shapes: Any, options: Mapping[str, Any]
) -> tuple[list[Any], Captured]:
    shown: Shown = []
    wrapped = Tapped(model, lambda found: shown.__setitem__(slice(None), found)).train(model.training)
    program = exporting.compile(wrapped, args, kwargs, dynamic_shapes=dynamic_shapes, **options)
    results = program.run(*(array(each) for each in tensors((tuple(args), dict(kwargs or {})))))
    return parted([_tensor(each) for each in results], shown)


class _Checks:
    """Checks calls of layers as PyTorch makes them, and returns the program's results to it."""

    def __init__(self, captured: Captured, ulps: Mapping[torch.dtype, float]) -> None:
        self.layers: list[Flips] = []
        self.bugs: list[Bug] = []
        self._left = {name: list(pairs) for name, pairs in captured.items()}
        self._ulps = ulps
        self._before: list[str] = []

    def call(self, call: Call) -> torch.Tensor:
        if not self._left.get(call.name):
            raise InputError(f"captured has too few calls of '{call.name}', or none")
        x, y, *others = self._left[call.name].pop(0)
        if (x.shape, y.shape) != (call.x.shape, call.y.shape):
            raise InputError(
                f"captured: '{call.name}' has {list(x.shape)} → {list(y.shape)}, in PyTorch "
                f"{list(call.x.shape)} → {list(call.y.shape)}"
            )
        ours, theirs = _floats(call.x), _floats(x)
        slack = self._slack(ours, call.x.dtype)
        allowed = self._ulps.get(call.x.dtype, 0.0)
        far = _far(ours, theirs, slack) * allowed
        if far > allowed:
            reason = f"its activations differ by {far:.3g} ulps from what {self._behind()} give in PyTorch"
            self.bugs.append(Bug(call.name, reason))
        if not isinstance(call.layer, ScaledLinear):
            self._experts(call, x, y, tuple(others) or call.others)
            return y
        product = _product(call, theirs, self._slack(theirs, call.x.dtype), y)
        wrong, off = product.wrong(), ~(np.abs(product.error) <= product.bound)
        if wrong.any():
            self.bugs.append(Bug(call.name, _where(wrong, product)))
        codes, scales = _differing(product.quantiser, ours, theirs)
        decoded = int((off.any(1) & ~wrong.any(1)).sum())
        self.layers.append(Flips(call.name, codes, scales, ours.size, far, allowed, len(ours), decoded))
        self._before = [*self._before[-2:], call.name]
        return y

    def _experts(self, call: Call, x: torch.Tensor, y: torch.Tensor, others: tuple[Any, ...]) -> None:
        """Makes the program's result PyTorch's for the program's rows. Flips between the experts' layers are not
        checked."""
        if len(others) == _ROUTING:
            self._routing(call, *others)
        ours = _floats(call.layer.forward(x, *others).reshape(y.shape))
        slack = _SUMS * self._slack(ours, y.dtype)
        if (far := _far(ours, _floats(y), slack)) > 1:
            tokens = np.flatnonzero((np.abs(ours - _floats(y)) > slack).any(1))
            reason = f"tokens {_listed(tokens, len(ours))} differ by up to {far:.3g} × what rounding explains"
            self.bugs.append(Bug(call.name, f"{reason}, unless a code flipped between the two layers of experts"))

    def _routing(self, call: Call, chosen: torch.Tensor, shares: torch.Tensor) -> None:
        """Checks that the program chooses other experts than PyTorch only where their shares are equal, to rounding.

        Shares are compared in order of their size, so that it does not matter which of two equal experts is chosen.
        """
        ours, theirs = (_floats(each.sort(-1, descending=True).values) for each in (call.others[1], shares))
        if (far := _far(ours, theirs, _SUMS * self._slack(ours, call.x.dtype))) > 1:
            reason = f"the shares of its experts differ by {far:.3g} × what rounding explains"
            self.bugs.append(Bug(call.name, f"{reason} from those of the router in PyTorch"))

    def end(self) -> None:
        """Raises InputError where calls have been captured that PyTorch did not make."""
        for name, pairs in self._left.items():
            if pairs:
                raise InputError(f"captured has {len(pairs)} calls of '{name}' that PyTorch does not make")

    def outputs(self, found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], name: str) -> None:
        if len(found) != len(expected):
            raise InputError(f"{len(found)} {name}, in PyTorch {len(expected)}")
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            if one.shape != other.shape:
                raise InputError(f"{name}: {index} is {list(one.shape)}, in PyTorch {list(other.shape)}")
            ours, theirs = _floats(other), _floats(one)
            off = _shares(ours, theirs, self._slack(ours, other.dtype))
            if (far := off.max(initial=0)) > 1:
                behind = f"what {self._behind()} give in PyTorch"
                reason = (
                    f"number {index} differs by {far:.3g} × what rounding explains from {behind}: {_places(off > 1)}"
                )
                self.bugs.append(Bug(name, reason))

    def _behind(self) -> str:
        return f"the program's results of {', '.join(self._before)}" if self._before else "the arguments"

    def _slack(self, x: np.ndarray, dtype: torch.dtype) -> np.ndarray:
        """Returns the tolerance of each number."""
        rows = x if x.ndim > 1 else x.reshape(1, -1)
        mean = np.sqrt(np.mean(np.square(rows, dtype=np.float64), axis=-1, keepdims=True)).reshape(*x.shape[:-1], -1)
        eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
        return (self._ulps.get(dtype, 0.0) * eps * (np.abs(x) + mean)).astype(np.float32)


def _far(ours: np.ndarray, theirs: np.ndarray, slack: np.ndarray) -> float:
    """Returns the largest difference as a fraction of the tolerance."""
    return float(_shares(ours, theirs, slack).max(initial=0))


def _shares(ours: np.ndarray, theirs: np.ndarray, slack: np.ndarray) -> np.ndarray:
    """Returns the differences as fractions of the tolerance. It is infinite where one is a NaN, or infinite, and the
    other not."""
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(all="ignore"):
        off = np.where(same, 0, np.abs(ours - theirs) / slack)
    return np.nan_to_num(off, nan=np.inf)


def _places(wrong: np.ndarray, what: str = "") -> str:
    """Returns where numbers are wrong, with all rows taken as one matrix; `what` its columns are."""
    matrix = wrong.reshape(-1, wrong.shape[-1] if wrong.ndim else 1)
    rows, columns = (_listed(np.flatnonzero(matrix.any(axis)), matrix.shape[1 - axis]) for axis in (1, 0))
    return f"columns {columns}{what}, rows {rows}"


def _product(call: Call, rows: np.ndarray, slack: np.ndarray, result: torch.Tensor) -> Product:
    layer = call.layer
    weight_format, input_format, mode = layer.formats
    weights = operators.values(layer.elements, layer.weight_scale, weight_format, np.float64).numpy()
    bias = np.zeros(len(weights)) if layer.bias is None else layer.bias.detach().double().cpu().numpy()
    eps = torch.finfo(call.y.dtype).eps
    return Product(rows, slack, weights, bias, Quantiser(input_format, mode), result.double().numpy(), eps)


def _differing(quantiser: Quantiser, ours: np.ndarray, theirs: np.ndarray) -> tuple[int, int]:
    """Returns how many codes differ in blocks with the same scale, and how many scales."""
    if quantiser.format == UNQUANTISED:
        return 0, 0
    (codes, scales), (others, other_scales) = quantiser.codes(ours), quantiser.codes(theirs)
    same = np.repeat(scales == other_scales, codes.shape[-1] // scales.shape[-1], axis=-1)
    return int((same & (codes != others)).sum()), int((scales != other_scales).sum())


def _where(wrong: np.ndarray, product: Product) -> str:
    """Returns which numbers of a result are wrong, and by how much."""
    with np.errstate(all="ignore"):
        most = np.nanmax(np.where(wrong, np.abs(product.error) / product.bound, 0))
    return (
        f"{wrong.sum()} of {wrong.size} numbers are no product of its activations' codes with its weights, by up to "
        f"{most:.3g} × what rounding explains: {_places(wrong, ' (rows of the weight)')}"
    )


def _listed(places: np.ndarray, size: int) -> str:
    if len(places) == size:
        return f"all {size}"
    return ", ".join(map(str, places[:4])) + (f" and {len(places) - 4} more" if len(places) > 4 else "")


def _floats(x: torch.Tensor) -> np.ndarray:
    return x.detach().float().cpu().numpy()


def _tensor(x: Any) -> torch.Tensor:
    """Returns what a program returned as a tensor."""
    if isinstance(x, torch.Tensor):
        return x.detach().cpu()
    x = np.ascontiguousarray(x)
    is_bf16 = x.dtype == ml_dtypes.bfloat16
    return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if is_bf16 else torch.from_numpy(x)
