"""Rotary embeddings that are computed, and quantised, where rows are written to caches: PyTorch's bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mxcomp.torch
from mxcomp.run.runtime import RunError
from mxcomp.torch.values import array

WRITES = ("index_copy", "index_put", "where")
FLOATS = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
"""Formats without scales of blocks."""


class Step(torch.nn.Module):
    """Queries, keys and values of one token, as Llama's layers have them: rotated, and written to caches.

    With a format, caches are those of elements and of scales, of keys and then of values. There is one position, or,
    where rows are not written by index_copy, one for each sequence.
    """

    def __init__(self, heads: int, groups: int, size: int, format: str = "", write: str = "index_copy") -> None:
        super().__init__()
        self.format, self.write = format, write
        self.parts, self.size = (heads * size, groups * size, groups * size), size
        self.register_buffer("frequencies", 10000 ** (-torch.arange(0, size, 2) / size))

    def forward(self, qkv: torch.Tensor, position: torch.Tensor, *caches: torch.Tensor) -> tuple[torch.Tensor, ...]:
        at = position[:, None] if self.write == "index_copy" else position[:, None, None, None]
        angles = at.float() * self.frequencies
        cos, sin = (function(torch.cat([angles, angles], -1)).to(qkv.dtype) for function in (torch.cos, torch.sin))
        q, k, v = (
            each.view(*qkv.shape[:2], -1, self.size).transpose(1, 2) for each in torch.split(qkv, self.parts, -1)
        )

        def rotated(x: torch.Tensor) -> torch.Tensor:
            first, second = x[..., : self.size // 2], x[..., self.size // 2 :]
            return x * cos + torch.cat([-second, first], -1) * sin

        new = self.stored(rotated(k), v)
        return rotated(q), *(self.cached(old, rows, position) for old, rows in zip(caches, new, strict=True))

    def cached(self, old: torch.Tensor, rows: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        if self.format in FLOATS:
            return self.written(old.view(torch.uint8), rows.view(torch.uint8), position).view(old.dtype)
        return self.written(old, rows, position)

    def written(self, old: torch.Tensor, rows: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        if self.write == "index_copy":
            return old.index_copy(2, position, rows)
        if self.write == "where":
            return torch.where((torch.arange(old.shape[2]) == position[:, None])[:, None, :, None], rows, old)
        cache = old.clone()
        cache[torch.arange(old.shape[0]), :, position] = rows[:, :, 0]
        return cache

    def stored(self, *rows: torch.Tensor) -> list[torch.Tensor]:
        if self.format in FLOATS:
            return [x.to(FLOATS[self.format]) for x in rows]
        return [part for x in rows for part in mxcomp.torch.quantise(x, self.format)] if self.format else [*rows]


@pytest.mark.parametrize(
    "batch, heads, groups, size, position, format",
    [
        pytest.param(1, 4, 2, 64, 5, "E4M3", marks=pytest.mark.slow),
        pytest.param(1, 4, 2, 64, 5, "", marks=pytest.mark.slow),
        pytest.param(3, 8, 8, 128, 31, "", marks=pytest.mark.slow),
        pytest.param(2, 64, 4, 80, 0, "", marks=pytest.mark.slow),
        pytest.param(3, 32, 8, 128, 31, "E2M1", marks=pytest.mark.slow),
        pytest.param(2, 8, 8, 96, 0, "E5M2", marks=pytest.mark.slow),
        pytest.param(3, 8, 4, 80, 31, "float8_e4m3fn", marks=pytest.mark.slow),
    ],
)
def test_bits_of_pytorch(batch: int, heads: int, groups: int, size: int, position: int, format: str) -> None:
    torch.manual_seed(batch)
    step, length = Step(heads, groups, size, format), 32
    qkv = torch.randn(batch, 1, (heads + 2 * groups) * size, dtype=torch.bfloat16)
    caches = step.stored(*(torch.randn(batch, groups, length, size, dtype=torch.bfloat16) for _ in range(2)))
    given = qkv, torch.tensor([position]), *caches
    program = mxcomp.torch.compile(step, given)
    assert [launch.part for launch in program.report.launches] == ["rows"]
    found = program.run(*(array(each) for each in given))
    for value, expected in zip(found, step(*given), strict=True):
        assert (value.astype("float32") == expected.float().numpy()).all()


class Attending(Step):
    """Attention of queries to what is in the caches.

    `returns_queries`: these are a result as well, for which a dispatch stores them.
    """

    def __init__(self, case: Case, returns_queries: bool = False) -> None:
        super().__init__(case.heads, case.groups, case.size, case.format, case.write)
        self.case, self.returns_queries = case, returns_queries
        if case.is_packed:
            self.o_proj = torch.nn.Linear(case.heads * case.size, 64, bias=False, dtype=case.dtype)

    def forward(self, qkv: torch.Tensor, position: torch.Tensor, *caches: torch.Tensor) -> tuple[torch.Tensor, ...]:
        queries, *stored = super().forward(qkv, position, *caches)
        made = self.attention(queries, position, self.read(stored))
        if self.case.is_packed:
            made = self.o_proj(made.transpose(1, 2).flatten(2))
        return (made, *stored, *[queries] * self.returns_queries)

    def attention(self, queries: torch.Tensor, position: torch.Tensor, stored: list[torch.Tensor]) -> torch.Tensor:
        behind = position[:, None] - torch.arange(self.case.length)
        seen = (behind >= 0) & (behind < (self.case.window or self.case.length))
        return torch.nn.functional.scaled_dot_product_attention(
            queries, *stored, attn_mask=seen[:, None, None], enable_gqa=True
        )

    def exact(self, qkv: torch.Tensor, position: torch.Tensor, *stored: torch.Tensor) -> np.ndarray:
        """Returns attention of queries to what is in the caches, in float64."""
        queries, *_ = Step.forward(self, qkv, position, *stored)
        return self.attention(queries.double(), position, [each.double() for each in self.read([*stored])]).numpy()

    def read(self, stored: list[torch.Tensor]) -> list[torch.Tensor]:
        if not self.format or self.format in FLOATS:
            return [x.to(self.case.dtype) for x in stored]
        pairs = zip(stored[::2], stored[1::2], strict=True)
        return [mxcomp.torch.dequantise(one, scales, self.format, self.case.dtype) for one, scales in pairs]


@dataclass(frozen=True)
class Case:
    """Sequences, heads of queries and of keys, their size, slots of a cache, how many of them a query sees, whether a
    product in MXFP4 is behind, and the format of caches, and how they are written."""

    batch: int
    heads: int
    groups: int
    size: int
    length: int
    position: int
    window: int = 0
    dtype: torch.dtype = torch.bfloat16
    is_packed: bool = False
    format: str = ""
    write: str = "index_copy"

    def numbers(self, *sizes: int) -> torch.Tensor:
        return torch.randn(self.batch, *sizes, dtype=self.dtype)

    def arguments(self) -> tuple[torch.Tensor, ...]:
        """Returns those of a first call."""
        torch.manual_seed(self.length)
        first = (self.numbers(self.groups, self.length, self.size) for _ in range(2))
        count = 1 if self.write == "index_copy" else self.batch
        at = (self.position + 3 * torch.arange(count)) % self.length
        return self.numbers(1, (self.heads + 2 * self.groups) * self.size), at, *Attending(self).stored(*first)

    def check_calls(self) -> list[str]:
        """Compares rows that calls write, and what they read of those before, with PyTorch's bits, and in float64; the
        last one is at a position behind the cache. Returns the parts of launches."""
        model, given = Attending(self), self.arguments()
        program = mxcomp.torch.compile(model, given)
        caches = [array(each) for each in given[2:]]
        for at in (given[1], (given[1] + 1) % self.length, (given[1] + self.length // 2) % self.length):
            qkv = self.numbers(1, given[0].shape[2])
            found, *caches = program.run(array(qkv), at.numpy(), *caches)
            _, *stored = model(qkv, at, *given[2:])
            given = qkv, at, *stored
            assert [each.tobytes() for each in caches] == [array(each).tobytes() for each in stored]
            atol = 2**-7 * max(each.abs().max().item() for each in model.read(stored))
            np.testing.assert_allclose(found.astype(np.float64), model.exact(*given), atol=atol, rtol=0)
        behind = array(given[0]), given[1].numpy() + self.length, *caches
        if self.write == "where":
            assert [each.tobytes() for each in program.run(*behind)[1:]] == [each.tobytes() for each in caches]
        else:
            with pytest.raises(RunError, match=f"rows must be written to places 0 to {self.length - 1} of a cache"):
                program.run(*behind)
        return [launch.part for launch in program.report.launches if launch.part]

    def check(self) -> None:
        """Compares the bits of attention that computes queries and rows with those of two dispatches."""
        given, found = self.arguments(), list[tuple[np.ndarray, ...]]()
        for returns_queries in (False, True):
            torch.manual_seed(0)
            model = Attending(self, returns_queries)
            mxcomp.torch.replace_linears(model, "f4E2M1FN", "f4E2M1FN")
            program = mxcomp.torch.compile(model, given, strict=True)
            found.append(program.run(*(array(each) for each in given)))
            parts = [launch.part for launch in program.report.launches]
            assert parts[: 1 + returns_queries] == ["rows"] * returns_queries + ["attention"]
        for one, other in zip(*found, strict=False):
            assert one.tobytes() == other.tobytes()
        for cache, expected in zip(found[0][1:], model(*given)[1:-1], strict=True):
            assert cache.tobytes() == array(expected).tobytes()


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(1, 4, 2, 64, 64, 37, format="E2M1"), marks=pytest.mark.slow, id="E2M1"),
        pytest.param(Case(1, 4, 2, 64, 64, 37), marks=pytest.mark.slow, id="16 bits"),
        pytest.param(Case(1, 8, 2, 128, 544, 543), marks=pytest.mark.slow, id="parts"),
        pytest.param(Case(3, 4, 2, 96, 96, 0), marks=pytest.mark.slow, id="sequences"),
        pytest.param(Case(2, 16, 2, 80, 128, 100, 48, torch.float16), marks=pytest.mark.slow, id="window"),
        pytest.param(Case(2, 3, 3, 160, 61, 60), marks=pytest.mark.slow, id="long rows"),
        pytest.param(Case(16, 32, 8, 128, 70, 37, is_packed=True), marks=pytest.mark.slow, id="packed"),
        pytest.param(Case(1, 8, 2, 128, 544, 543, format="E4M3"), marks=pytest.mark.slow, id="E4M3 in parts"),
        pytest.param(Case(3, 4, 2, 96, 96, 0, format="E5M2"), marks=pytest.mark.slow, id="E5M2 of sequences"),
        pytest.param(
            Case(1, 8, 2, 128, 544, 543, format="float8_e4m3fn"), marks=pytest.mark.slow, id="float8 in parts"
        ),
        pytest.param(
            Case(16, 32, 8, 128, 70, 37, is_packed=True, format="float8_e5m2"),
            marks=pytest.mark.slow,
            id="float8 packed",
        ),
        pytest.param(
            Case(16, 32, 8, 128, 70, 37, is_packed=True, format="E2M1"), marks=pytest.mark.slow, id="E2M1 packed"
        ),
    ],
)
def test_attention_computes_them(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("format", ["E4M3", pytest.param("float8_e4m3fn", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "write", [pytest.param(each, marks=[pytest.mark.slow] * (each != "index_put")) for each in WRITES]
)
def test_calls(write: str, format: str) -> None:
    """Each sequence has a position of its own, but for index_copy; one behind the cache is an error of the call, or, by
    a choice, nothing is written."""
    assert Case(2, 4, 2, 64, 64, 37, format=format, write=write).check_calls() == ["attention"]


@pytest.mark.slow
@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.data())
def test_calls_of_sizes(data: st.DataObject) -> None:
    format, batch = data.draw(st.sampled_from(["", *FLOATS, "E4M3", "E5M2", "E2M1"])), data.draw(st.integers(1, 3))
    is_plain = not format or format in FLOATS
    size = data.draw(st.sampled_from([48, 64, 80, 128] if is_plain else [64, 96, 128]))
    groups, group = data.draw(st.sampled_from([(1, 2), (2, 1), (2, 4), (3, 5), (8, 4)]))
    length = data.draw(st.integers(2, 9)) * 16
    Case(
        batch, groups * group, groups, size, length,
        data.draw(st.integers(0, length - 1)), data.draw(st.sampled_from([0, 8, 40])),
        data.draw(st.sampled_from([torch.bfloat16, torch.float16])), False, format, data.draw(st.sampled_from(WRITES)),
    ).check_calls()  # fmt: skip


class Twice(Step):
    """Keys are what both caches get."""

    def stored(self, *rows: torch.Tensor) -> list[torch.Tensor]:
        return [rows[0], rows[0]]


@pytest.mark.parametrize(
    "kind, parts",
    [
        (Step, ["rotation"]),
        pytest.param(Twice, ["rotation", "rows"], marks=pytest.mark.slow),
    ],
)
def test_many_rows(kind: type[Step], parts: list[str]) -> None:
    """The kernel that rotates many rows writes keys and values to caches, if nothing else reads them."""
    torch.manual_seed(0)
    step, rows = kind(32, 2, 64), 64
    caches = [torch.randn(1, 2, 96, 64, dtype=torch.bfloat16) for _ in range(2)]
    given = torch.randn(1, rows, 36 * 64, dtype=torch.bfloat16), torch.arange(rows).flip(0) + 7, *caches
    program = mxcomp.torch.compile(step, given)
    assert [launch.part for launch in program.report.launches if launch.part] == parts
    found = program.run(*(array(each) for each in given))
    for value, expected in zip(found, step(*given), strict=True):
        assert (value.astype("float32") == expected.float().numpy()).all()


class Prompt(Step):
    """Rows of many tokens, from a position on."""

    def forward(self, qkv: torch.Tensor, position: torch.Tensor, *caches: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return super().forward(qkv, position + torch.arange(qkv.shape[1]), *caches)

    def written(self, old: torch.Tensor, rows: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        place = torch.arange(old.shape[2]) - position[0]
        is_new = (place >= 0) & (place < rows.shape[2])
        return torch.where(is_new[:, None], rows.index_select(2, place.clamp(0, rows.shape[2] - 1)), old)


def test_dynamic_rows() -> None:
    """So does that of a dynamic number of rows."""
    torch.manual_seed(0)
    step = Prompt(4, 2, 64)
    caches = [torch.randn(1, 2, 40, 64, dtype=torch.bfloat16) for _ in range(2)]
    rows = {1: torch.export.Dim("rows", min=2, max=4096)}

    def given(count: int, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(1, count, 8 * 64, dtype=torch.bfloat16), torch.tensor([at])

    program = mxcomp.torch.compile(step, (*given(9, 0), *caches), dynamic_shapes=(rows, None, (None, None)))
    assert [launch.part for launch in program.report.launches if launch.part] == ["rotation"]
    for count, at in ((9, 3), (1, 39), (45, -2)):
        arguments = *given(count, at), *caches
        queries, *caches = step(*arguments)
        for value, expected in zip(program.run(*map(array, arguments)), (queries, *caches), strict=True):
            np.testing.assert_array_equal(value.astype("float32"), expected.float().numpy())


def test_tables_of_many_rows() -> None:
    """Cosines and sines of many rows are one dispatch, as the model rounds them."""
    torch.manual_seed(0)
    step, rows = Step(32, 1, 64), 40
    caches = [torch.randn(1, 1, rows, 64, dtype=torch.bfloat16) for _ in range(2)]
    given = torch.randn(1, rows, 34 * 64, dtype=torch.bfloat16), torch.arange(rows), *caches
    program = mxcomp.torch.compile(step, given)
    assert [launch.part for launch in program.report.launches if launch.part] == ["rotation", "rotation", "rows"]
    found = program.run(*(array(each) for each in given))
    for value, expected in zip(found, step(*given), strict=True):
        assert (value.astype("float32") == expected.float().numpy()).all()
    text = mxcomp.torch.compile(step, given, compile_to="flow").vmfb.decode()
    assert text.count("math.cos") == text.count("math.sin") == 1
    assert "(tensor<40x64xbf16>, tensor<40x64xbf16>)" in text
