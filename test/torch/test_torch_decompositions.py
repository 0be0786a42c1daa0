"""Operators that IREE does not take, or gets wrong, written by others: against PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.nn import functional

import mxcomp.torch
from mxcomp.torch.decompositions import table

CASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "GELU by tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "GELU": torch.nn.functional.gelu,
    "roll": lambda x: torch.roll(x, (3, -5), (0, 1)),
    "roll of all": lambda x: torch.roll(x, 7),
    "histogram": lambda x: torch.histc(x[0], 6, -1, 1),
    "top-k in any order": lambda x: torch.topk(x, 4, sorted=False).values.sum(-1),
}


class Operators(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [function(x) for function in CASES.values()]


def test_operators() -> None:
    """Each of them, in one program."""
    x = torch.linspace(-6, 6, 8 * 40)[torch.randperm(320, generator=torch.Generator().manual_seed(0))].reshape(8, 40)
    results = mxcomp.torch.compile(Operators(), (x,)).run(x.numpy())
    for (name, function), found in zip(CASES.items(), results, strict=True):
        expected = function(x.double()).numpy()
        assert np.abs(expected).max() > 0.5, name
        np.testing.assert_allclose(found, expected, atol=2e-6, rtol=1e-6, err_msg=name)


class Marked(torch.nn.Module):
    """The best one of each row, as DeepSeek's router marks groups, and two columns of fewer rows."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best = torch.zeros_like(x).scatter_(1, torch.topk(x, 1, sorted=False)[1], 1)
        return best, x.scatter(0, torch.tensor([[0, 1, 1], [2, 1, 0]]), -9.0)


def test_marks() -> None:
    """Any number of rows; the second's indices are of fewer columns, and stay a scatter."""
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    program = mxcomp.torch.compile(Marked(), (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=3, max=16)},))
    for rows in (7, 3):
        for found, expected in zip(program.run(x[:rows].numpy()), Marked()(x[:rows]), strict=True):
            assert (found == expected.numpy()).all()


ROUNDED_ONCE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "layer norm": lambda x: functional.layer_norm(x, (40,), torch.ones_like(x[0]), x[0]),
    "group norm": lambda x: functional.group_norm(x[..., None], 4, torch.ones_like(x[0]), x[0])[..., 0],
    "vector norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "gelu": functional.gelu,
    "tanh gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "elu": functional.elu,
    "selu": functional.selu,
    "softmax": lambda x: functional.softmax(x, -1),
    "log_softmax": lambda x: functional.log_softmax(x, -1),
    "sum": lambda x: x.sum(-1),
    "sum of all": lambda x: x.sum()[None],
    "sum in f32": lambda x: x.sum(-1, dtype=torch.promote_types(x.dtype, torch.float32)),
    "mean": lambda x: x.mean(-1),
    "mean of all": lambda x: x.mean()[None],
    "cumsum": lambda x: x.cumsum(-1),
    "linear": lambda x: functional.linear(x, x, 4 * x[:, 0]),
    "addmm": lambda x: torch.addmm(4 * x[:, 0], x, x.T, beta=0.7, alpha=0.3),
    "pool": lambda x: functional.avg_pool1d(x[None], 5)[0],
    "product": lambda x: x * 0.3,
    "quotient": lambda x: x / 3.3,
    "with a number": lambda x: x + 0.3,
    "add": lambda x: torch.add(x, x.flip(1), alpha=0.3),
    "sub": lambda x: torch.sub(x, x.flip(1), alpha=0.3),
}
"""PyTorch gives each of 16-bit floats to half a unit in the last place, or in that of what is summed."""


class RoundedOnce(torch.nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [function(x.to(self.dtype)).float() for function in ROUNDED_ONCE.values()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)], ids=str)
def test_rounded_once(dtype: torch.dtype) -> None:
    """What is computed in f32, as in PyTorch, errs as much as PyTorch's, against float64."""
    x = (2 * torch.randn(8, 40, generator=torch.Generator().manual_seed(0))).to(dtype)
    results = mxcomp.torch.compile(RoundedOnce(dtype), (x.float(),)).run(x.float().numpy())
    for (name, function), found in zip(ROUNDED_ONCE.items(), results, strict=True):
        exact, pytorch = function(x.double()).numpy(), function(x).double().numpy()
        ours, theirs = (np.sqrt(np.mean((each - exact) ** 2)) for each in (found, pytorch))
        smallest = np.sqrt(np.mean(exact**2)) * torch.finfo(dtype).eps / 64
        assert ours <= 1.05 * theirs + smallest, (name, ours, theirs)


@pytest.mark.parametrize(
    ("rows", "inputs", "owner"),
    [
        (4, 256, "linear "),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 256, "linear "), (20, 248, ""))),
    ],
)
def test_bias_is_added_where_the_product_is(rows: int, inputs: int, owner: str) -> None:
    """One kernel, which multiplies bf16: ours, and, where K is no multiple of 32, IREE's."""
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(inputs, 48).bfloat16(), torch.randn(rows, inputs).bfloat16()
    array = x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    program = mxcomp.torch.compile(linear, (x,))
    (found,) = program.run(array)
    with torch.no_grad():
        pytorch, exact = linear(x).double(), linear.double()(x.double())
    ours, theirs = (np.sqrt(np.mean((each - exact.numpy()) ** 2)) for each in (found, pytorch.numpy()))
    assert 0 < ours <= 1.05 * theirs
    (dispatch,) = program.profile(array).dispatches
    assert dispatch.owner.startswith(owner) if owner else "bf16xbf16xf32" in dispatch.kernel


def test_numbers_that_are_16_bit_floats_are_left_alone() -> None:
    """Half of something is the same in any type."""
    x = torch.ones(4, dtype=torch.bfloat16)
    program = torch.export.export(Halved(), (x,)).run_decompositions(table())
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert called == ["aten.mul.Tensor", "aten.add.Tensor"]


def test_bytes_are_unsigned() -> None:
    """Sorts, top-k, sums, quotients and comparisons take bytes above 127 as positive numbers; results have the type."""

    class Ordered(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            ones = torch.ones(2, 4)
            wide = x * 0.5, x + 1000 * ones.int(), ones / x, x > 130.5 * ones, torch.cat([x, ones])
            whole = x // x.flip(0).clamp(min=3), torch.div(x, 3, rounding_mode="trunc")
            return *torch.sort(x), x.topk(3)[1], x.sum(-1), x.cumsum(-1), *whole, x > 130, x != 200, x + 9, x, *wide

    x = torch.tensor([[200, 3, 100, 255], [0, 128, 127, 1]], dtype=torch.uint8)
    found = mxcomp.torch.compile(Ordered(), (x,)).run(x.numpy())
    for ours, theirs in zip(found, Ordered()(x), strict=True):
        assert ours.dtype == theirs.numpy().dtype
        np.testing.assert_array_equal(ours, theirs.numpy())


class Halved(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0.5 + 2


class Stable(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ascending, descending = torch.sort(x, stable=True), torch.sort(x, stable=True, descending=True)
        return *ascending, *descending, torch.argsort(y, stable=True, dim=0), torch.argsort(y, stable=True)


class Ends(torch.nn.Module):
    """The largest and the least of rows, and where they are; of rows that have neighbours as well."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        least = torch.topk(x, 60, largest=False)
        return *torch.topk(x, 5), *least, *torch.topk(y, 2, dim=1)


def test_ends_of_rows() -> None:
    """NaN is above all numbers, and infinities are numbers; rows have no whole waves."""
    torch.manual_seed(4)
    x, y = torch.randn(3, 60), torch.randint(-99, 99, (2, 33, 3), dtype=torch.int32)
    x[0, 7], x[1, 9], x[2, 50], y = float("nan"), float("inf"), float("-inf"), y.cumsum(1, dtype=torch.int32)
    program = mxcomp.torch.compile(Ends(), (x, y))
    for found, expected in zip(program.run(x.numpy(), y.numpy()), Ends()(x, y), strict=True):
        assert np.array_equal(found, expected.numpy(), equal_nan=True)
    assert not any("sort" in each.kernel for each in program.profile(x.numpy(), y.numpy()).dispatches)


def test_stable_sort() -> None:
    """Of numbers that are equal to many others, which keep their order."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 4, (3, 14), generator=generator)
    y = torch.randint(0, 3, (11, 5), generator=generator).float()
    found = mxcomp.torch.compile(Stable(), (x, y)).run(x.numpy(), y.numpy())
    for one, other in zip(found, Stable()(x, y), strict=True):
        np.testing.assert_array_equal(one, other)


class Indexed(torch.nn.Module):
    """By several indices, next to each other and apart, negative ones too: read, written and added to."""

    def forward(
        self, x: torch.Tensor, i: torch.Tensor, j: torch.Tensor, v: torch.Tensor, row: int
    ) -> tuple[torch.Tensor, ...]:
        written = [x.clone() for _ in range(4)]
        written[0][:, j, i] = v
        written[1][i, :, j] = v[:, None]
        written[2][:, :, i] = v
        written[3][i.int()] = 0
        added = torch.ops.aten.index_put(x, (None, i[:, None], j), v, True)
        apart = x[i[:, None], j], x[i[:, None, None], :, j[:, None].int()]
        return x[i, j], x[:, i, j], x[i, :, j[:, None]], *apart, x[..., j.int()], *written, added, x.select(0, row)


@pytest.mark.parametrize("dynamic", [False, True])
def test_indices(dynamic: bool) -> None:
    """Several indices of dynamic sizes, negative ones to write at, and a number of Python's."""
    rows, count = torch.export.Dim("rows", min=4, max=64), torch.export.Dim("count", max=9)
    dims = ({0: rows}, {0: count}, {0: count}, {0: count}, torch.export.Dim.DYNAMIC)
    rng = torch.Generator().manual_seed(0)
    first = (torch.randn(5, 6, 5, generator=rng), torch.tensor([2, -1, 3]), torch.tensor([3, 1, -2]))
    second = (torch.randn(7, 6, 5, generator=rng), torch.tensor([-3, 0]), torch.tensor([0, -5]))
    calls = [(*tensors, torch.randn(len(tensors[1]), generator=rng), row) for tensors, row in ((first, 2), (second, 3))]
    program = mxcomp.torch.compile(Indexed(), calls[0], dynamic_shapes=dims if dynamic else None)
    for call in calls if dynamic else calls[:1]:
        given = [each.numpy() if isinstance(each, torch.Tensor) else each for each in call]
        results = program.run(*(given if dynamic else given[:-1]))
        for found, expected in zip(results, Indexed()(*call), strict=True):
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)
