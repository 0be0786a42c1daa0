"""Attention of PyTorch, kept whole for IREE: against PyTorch's own in f64, also where IREE is wrong or refuses."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest
import torch

import mxcomp.torch

attention = torch.nn.functional.scaled_dot_product_attention
Case: TypeAlias = tuple[dict[str, Any], tuple[torch.Tensor, ...]]

GENERATOR = torch.Generator().manual_seed(0)


def numbers(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=GENERATOR)


def operands(queries: int, keys: int, heads: int = 2, key_heads: int = 2, size: int = 16, value_size: int = 16) -> Any:
    return (
        numbers(2, heads, queries, size), numbers(2, key_heads, keys, size), numbers(2, key_heads, keys, value_size)
    )  # fmt: skip


SEEN = torch.rand(5, 40, generator=GENERATOR) > 0.4
BLIND = torch.where(torch.arange(5)[:, None] == 3, torch.tensor(False), SEEN)
"""A mask whose row 3 sees nothing."""

CASES: dict[str, Case] = {
    "nothing else": ({}, operands(17, 17)),
    "causal, more keys": ({"is_causal": True}, operands(5, 40)),
    "causal, more queries": ({"is_causal": True}, operands(40, 5)),
    "scale": ({"scale": 0.3}, operands(5, 40)),
    "scale of 1": ({"scale": 1.0}, operands(5, 40)),
    "grouped queries": ({"enable_gqa": True}, operands(5, 40, heads=4)),
    "grouped queries, mask": ({"enable_gqa": True}, (*operands(5, 40, heads=4), SEEN[None, None])),
    "values of another size": ({}, operands(5, 40, value_size=24)),
    "sizes that are no powers of two": ({}, operands(5, 40, size=5, value_size=5)),
    "rank 2": ({}, (numbers(5, 16), numbers(40, 16), numbers(40, 16))),
    "rank 3, mask": ({}, (numbers(2, 5, 16), numbers(2, 40, 16), numbers(2, 40, 16), SEEN)),
    "rank 5": ({}, (numbers(2, 3, 2, 5, 16), numbers(2, 3, 2, 40, 16), numbers(2, 3, 2, 40, 16))),
    "one batch of keys": ({}, (numbers(2, 2, 5, 16), numbers(1, 2, 40, 16), numbers(1, 1, 40, 16))),
    "one key": ({}, operands(5, 1)),
    "one key, mask": ({}, (*operands(40, 1), SEEN[:1, :, None].expand(2, 1, 40, 1).clone())),
    "one query": ({}, operands(1, 40)),
    "a single workgroup": ({"is_causal": True}, (numbers(50, 16), numbers(50, 16), numbers(50, 16))),
    "mask of one number": ({}, (*operands(5, 40), torch.tensor([[True]]))),
    "mask of rank 2": ({}, (*operands(5, 40), SEEN)),
    "mask of numbers by head": ({}, (*operands(5, 40), numbers(2, 5, 40))),
    "mask of numbers by batch": ({}, (*operands(5, 40), numbers(2, 1, 1, 40))),
    "a row without keys": ({}, (*operands(5, 40), BLIND[None, None])),
    "a row of infinities": ({}, (*operands(5, 40), torch.where(BLIND, 0.0, -math.inf))),
    "a row of lowest numbers": ({}, (*operands(5, 40), torch.where(BLIND, 0.0, -3.3e38))),
}
SAMPLE = ("a row without keys", "one key")
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def check(case: Case, dtype: torch.dtype, dynamic_shapes: Any = None, *others: tuple[torch.Tensor, ...]) -> None:
    options, tensors = case
    module = Attention(options)
    runs = [tuple(t.to(dtype) if t.is_floating_point() else t for t in each) for each in (tensors, *others)]
    program = mxcomp.torch.compile(module, runs[0], dynamic_shapes=dynamic_shapes)
    for each in runs:
        (found,) = program.run(*map(as_numpy, each))
        expected = module(*(t.double() if t.is_floating_point() else t for t in each)).numpy()
        assert np.abs(found.astype(np.float64) - expected).max() <= TOLERANCE[dtype] * np.abs(expected).max()


class Attention(torch.nn.Module):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.options = options

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        return attention(q, k, v, mask, **self.options)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


@pytest.mark.parametrize("name", SAMPLE)
def test_sample(name: str) -> None:
    check(CASES[name], torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_attention(name: str, dtype: torch.dtype) -> None:
    check(CASES[name], dtype)


def test_dynamic_keys_without_a_mask() -> None:
    """IREE's kernel reads keys beyond their end, if nothing masks them."""
    keys = torch.export.Dim("keys", max=64)
    check(({}, operands(1, 40)), torch.float32, (None, {2: keys}, {2: keys}), operands(1, 2))


def test_more_keys_than_the_kernel_is_made_for() -> None:
    """What is known of sizes makes kernels fast, and never wrong: these are the keys of 128 rows and a long cache."""
    keys, tensors = torch.export.Dim("keys", max=16), operands(3, 8)
    module = mxcomp.torch.export(Attention({}), tensors, dynamic_shapes=(None, {2: keys}, {2: keys}))
    q, k, v = operands(3, 200)
    (found,) = mxcomp.compile(module).run(*map(as_numpy, (q, k, v)))
    np.testing.assert_allclose(found, attention(q, k, v).numpy(), rtol=1e-4, atol=1e-5)


L, S = torch.export.Dim("L", max=64), torch.export.Dim("S", max=64)
DYNAMIC = ({2: L}, {2: S}, {2: S})
SIZES = ((1, 2), (33, 5), (20, 64))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"enable_gqa": True}, {"scale": 0.3}], ids=lambda options: str(options)
)
def test_dynamic(options: dict[str, Any], dtype: torch.dtype) -> None:
    heads = {"heads": 4} if "enable_gqa" in options else {}
    check((options, operands(5, 40, **heads)), dtype, DYNAMIC, *(operands(*sizes, **heads) for sizes in SIZES))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_dynamic_mask(dtype: torch.dtype) -> None:
    others = [(*operands(*sizes), torch.rand(sizes, generator=GENERATOR) > 0.4) for sizes in SIZES]
    check(({}, (*operands(5, 40), BLIND)), dtype, (*DYNAMIC, {0: L, 1: S}), *others)


LARGE = (*(3 * each for each in operands(5, 40)), numbers(2, 1, 5, 40))
"""Scores of magnitude 36, whose last bits matter."""


@pytest.mark.parametrize(
    ("dtype", "dynamic"),
    [(torch.bfloat16, None), *(pytest.param(*each, marks=pytest.mark.slow) for each in (
        (torch.float16, None), (torch.bfloat16, (*DYNAMIC, {2: L, 3: S})), (torch.float16, (*DYNAMIC, {2: L, 3: S})),
    ))],
)  # fmt: skip
@pytest.mark.parametrize("scale", [1.0, pytest.param(None, marks=pytest.mark.slow)])
def test_scores_in_f32(dtype: torch.dtype, dynamic: Any, scale: float | None) -> None:
    """They err as much as PyTorch's, which multiplies scores by the scale, not queries."""
    module, tensors = Attention({"scale": scale}), tuple(each.to(dtype) for each in LARGE)
    program = mxcomp.torch.compile(module, tensors, dynamic_shapes=dynamic)
    assert [each.ukernel is not None for each in program.report.attentions] == [True]
    (found,) = program.run(*map(as_numpy, tensors))
    exact, pytorch = module(*(each.double() for each in tensors)).numpy(), module(*tensors).double().numpy()
    ours, theirs = (np.sqrt(np.mean((each - exact) ** 2)) for each in (found.astype(np.float64), pytorch))
    assert 0 < ours <= 1.05 * theirs


class Layer(torch.nn.Module):
    """One token more for a cache of keys and values, with attention to what is there so far, and a projection."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.query, self.projection = (torch.nn.Linear(heads * size, heads * size, bias=False) for _ in range(2))
        self.heads = heads

    def forward(
        self, x: torch.Tensor, position: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch, _, width = x.shape
        query = self.query(x).view(batch, 1, self.heads, -1).transpose(1, 2)
        places = torch.arange(keys.shape[2])
        new = query[:, : keys.shape[1]]
        keys = torch.where(places[:, None] == position, new, keys)
        result = attention(query, keys, values, (places <= position)[None], enable_gqa=True)
        return self.projection(result.transpose(1, 2).reshape(batch, 1, width)), keys


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "keys", "heads", "size", "combined"), [(1, 100, 8, 64, False), (3, 256, 6, 128, True)]
)
def test_layer_of_a_decoder(batch: int, keys: int, heads: int, size: int, combined: bool) -> None:
    """Kernels of ours in a program: what they read is written by others, and what they write is read. Few keys need no
    parts that are combined."""
    torch.manual_seed(0)
    layer = Layer(heads, size).bfloat16()
    tensors = (numbers(batch, 1, heads * size), torch.tensor([keys // 2]), *(numbers(batch, 2, keys, size),) * 2)
    rounded = [each.bfloat16() if each.is_floating_point() else each for each in tensors]
    program = mxcomp.torch.compile(layer, tuple(rounded))
    assert [bool(each.ukernel) for each in program.report.attentions] == [True]
    names = [each.part for each in program.report.launches]
    assert names.count("attention") == 1 and names.count("combine") == combined
    found = program.run(*map(as_numpy, rounded))
    expected = layer.double()(*(each.double() if each.is_floating_point() else each for each in rounded))
    for one, other in zip(found, expected, strict=True):
        exact = other.detach().numpy()
        assert np.abs(one.astype(np.float64) - exact).max() <= 2e-2 * np.abs(exact).max()


class Positions(torch.nn.Module):
    """A mask as transformers makes it: of numbers, from the position of the first query."""

    def __init__(self, hidden: float) -> None:
        super().__init__()
        self.hidden = hidden

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        seen = torch.arange(k.shape[2])[None] <= (position + torch.arange(q.shape[2]))[:, None]
        mask = torch.where(seen, 0.0, self.hidden).to(q.dtype)
        return attention(q, k, v, mask[None, None], enable_gqa=True)


@pytest.mark.parametrize(
    ("queries", "hidden"),
    [(2, -3.3895e38), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((70, -3.3895e38), (1, -math.inf)))],
)
def test_positions(queries: int, hidden: float) -> None:
    """No mask is computed. Also of positions behind the last key, and such that queries see none."""
    module, tensors = Positions(hidden), [each.bfloat16() for each in operands(queries, 150, heads=4, size=32)]
    program = mxcomp.torch.compile(module, (*tensors, torch.tensor([3])))
    parts = [each.part for each in program.report.launches if each.function]
    assert parts[0] == "attention" or not math.isfinite(hidden)
    with program.session() as session:
        for position in (0, 80, 160, -2):
            (found,) = session.main(*map(as_numpy, (*tensors, torch.tensor([position]))))
            expected = module(*(each.double() for each in tensors), torch.tensor([position])).numpy()
            assert np.abs(found.astype(np.float64) - expected).max() <= 2**-7 * np.abs(as_numpy(tensors[2])).max()


ATTENTION = "torch.aten.scaled_dot_product_attention"


@pytest.mark.parametrize(("name", "count"), [("nothing else", 1), ("mask of rank 2", 1), ("one key", 1), ("rank 2", 0)])
def test_which_stay_whole(name: str, count: int) -> None:
    options, tensors = CASES[name]
    assert str(mxcomp.torch.export(Attention(options), tensors)).count(ATTENTION) == count


def test_scales() -> None:
    """The usual one, and those that bf16 has, are given as they are; others are in the queries."""
    _, tensors = CASES["scale"]
    in_bf16 = tuple(tensor.bfloat16() for tensor in tensors)
    for scale, factors in ((0.25, 0), (1.0, 0), (0.3, 1)):
        assert str(mxcomp.torch.export(Attention({"scale": scale}), in_bf16)).count("torch.aten.mul") == factors


class Columns(torch.nn.Module):
    """Causal attention of rotated queries and keys that are columns of one tensor, as values are."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v = (part.unflatten(2, (-1, 64)).transpose(1, 2) for part in x.split([256, 128, 128], 2))
        angles = torch.arange(x.shape[1])[:, None] * 0.1 ** torch.arange(32)
        cos, sin = (torch.cat([each, each], -1).bfloat16() for each in (angles.cos(), angles.sin()))
        q, k = (y * cos + torch.cat([-y[..., 32:], y[..., :32]], -1) * sin for y in (q, k))
        return attention(q, k, v, is_causal=True, enable_gqa=True), k, v


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2])
def test_columns_of_dynamic_rows(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """Rotations and transposed values are one dispatch, and nothing is copied: bit for bit what it is otherwise."""
    xs = [torch.randn(batch, count, 512, generator=GENERATOR).bfloat16() for count in (33, 2, 130)]
    sizes = ({1: torch.export.Dim("tokens", max=512)},)

    def ran() -> tuple[int, list[tuple[np.ndarray, ...]]]:
        program = mxcomp.torch.compile(Columns(), (xs[0],), dynamic_shapes=sizes, strict=True)
        launched = len(program.profile(as_numpy(xs[0]), execute=False).called)
        return launched, [tuple(program.run(as_numpy(x))) for x in xs]

    launches, found = ran()
    monkeypatch.setattr("mxcomp.packing.elementwise.fits", lambda values: False)
    monkeypatch.setattr("mxcomp.matching.attention_operands._in_source", lambda *_: None)
    others, expected = ran()
    assert (launches, others) == (4, 7)
    for one, other in zip(found, expected, strict=True):
        assert all(np.array_equal(*(each.view(np.uint16) for each in pair)) for pair in zip(one, other, strict=True))
