"""Caches that a program gets and returns with new rows: written in place, call after call, against PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mxcomp.torch
from mxcomp.compiler import Program
from mxcomp.errors import InputError
from mxcomp.run import runtime
from mxcomp.run.devices import Kept
from mxcomp.run.runtime import RunError

Tensor: TypeAlias = torch.Tensor
Write: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]

GENERATOR = torch.Generator().manual_seed(0)
DIM = torch.export.Dim("rows", min=2, max=4096)


def chosen(cache: Tensor, rows: Tensor, at: Tensor) -> Tensor:
    place = torch.arange(cache.shape[2]) - at[0]
    meant = (place >= 0) & (place < rows.shape[2])
    return torch.where(meant[:, None], rows.index_select(2, place.clamp(0, rows.shape[2] - 1)), cache)


def equal(cache: Tensor, rows: Tensor, at: Tensor) -> Tensor:
    return torch.where((torch.arange(cache.shape[2]) == at[0])[:, None], rows, cache)


def copied(cache: Tensor, rows: Tensor, at: Tensor) -> Tensor:
    return cache.index_copy(2, at[0] + torch.arange(rows.shape[2]), rows)


def put(cache: Tensor, rows: Tensor, at: Tensor) -> Tensor:
    cache = cache.clone()
    cache[:, :, at[0] + torch.arange(rows.shape[2])] = rows
    return cache


def by_sequence(cache: Tensor, rows: Tensor, at: Tensor) -> Tensor:
    """Each sequence has a position of its own."""
    cache = cache.clone()
    cache[torch.arange(cache.shape[0]), :, at[: cache.shape[0]]] = rows[:, :, 0]
    return cache


def by_sequence_and_row(cache: Tensor, rows: Tensor, at: Tensor) -> Tensor:
    cache = cache.clone()
    sequence, count = torch.arange(cache.shape[0])[:, None], rows.shape[2]
    cache[sequence, :, at[: cache.shape[0], None] + torch.arange(count)] = rows.transpose(1, 2)
    return cache


def paged(cache: Tensor, rows: Tensor, at: Tensor) -> Tensor:
    """Rows of all heads lie together, in slots of pages: here the cache is all pages of all sequences."""
    batch, heads, length, size = cache.shape
    slots = cache.reshape(batch * length, heads * size)
    at = torch.arange(batch).flip(0) * length + at[:batch]
    return slots.index_copy(0, at, rows[:, :, 0].reshape(batch, -1)).reshape(cache.shape)


def paged_rows(cache: Tensor, rows: Tensor, at: Tensor) -> Tensor:
    """Several rows of each sequence, in slots of pages of four, which take turns."""
    batch, heads, _, size = cache.shape
    places = at[:batch, None] + torch.arange(rows.shape[2])
    slots = (torch.arange(batch)[:, None] + batch * (places // 4)) * 4 + places % 4
    made = cache.reshape(-1, heads, size).index_copy(
        0, slots.reshape(-1), rows.transpose(1, 2).reshape(-1, heads, size)
    )
    return made.reshape(cache.shape)


class Caches(torch.nn.Module):
    """Caches with new rows, each written in another way, and sums of them."""

    def __init__(self, *writes: Write) -> None:
        super().__init__()
        self.writes = writes

    def forward(self, at: Tensor, rows: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        written = [write(cache, rows, at) for write, cache in zip(self.writes, caches, strict=True)]
        return (*written, torch.stack([cache.float().sum(2) for cache in written]))


def check(
    writes: Sequence[Write], sizes: Sequence[int], rows: int | Sequence[int], calls: Sequence[Sequence[int]],
    dtype: torch.dtype,
) -> Program:  # fmt: skip
    """Compares calls, each of which is given what the one before has returned; with a dynamic number of rows, those of
    each call."""
    batch, heads, _, size = sizes
    model = Caches(*writes)
    caches = tuple(torch.randn(*sizes, generator=GENERATOR).to(dtype) for _ in writes)
    counts = [rows] * len(calls) if isinstance(rows, int) else rows

    def inputs(at: Sequence[int], count: int) -> tuple[Tensor, Tensor]:
        return torch.tensor(at), torch.randn(batch, heads, count, size, generator=GENERATOR).to(dtype)

    dynamic = None if isinstance(rows, int) else {"at": None, "rows": {2: DIM}, "caches": (None,) * len(caches)}
    program = mxcomp.torch.compile(model, (*inputs(calls[0], counts[0]), *caches), dynamic_shapes=dynamic)
    first = given = [as_numpy(cache) for cache in caches]
    before = [cache.copy() for cache in first]
    for at, count in zip(calls, counts, strict=True):
        arguments = inputs(at, count)
        *given, sums = program.run(*map(as_numpy, arguments), *given)
        *caches, expected = model(*arguments, *caches)
        for found, cache in zip(given, caches, strict=True):
            np.testing.assert_array_equal(found, as_numpy(cache))
        np.testing.assert_allclose(sums, expected.numpy(), rtol=1e-4, atol=1e-4)
    for array, copy in zip(first, before, strict=True):  # those of a caller are not written over
        np.testing.assert_array_equal(array, copy)
    return program


def as_numpy(tensor: Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def test_several_ways() -> None:
    """Two caches that are written at the same places share a dispatch."""
    writes = (chosen, copied, put, by_sequence)
    program = check(writes, (2, 3, 16, 8), 1, ([3, 5], [4, 0], [15, 15]), torch.bfloat16)
    assert [each.part for each in program.report.launches if each.part] == ["rows"] * 3
    assert not any("scatter" in each.kernel or "transpose" in each.kernel for each in program.report.launches)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_several_rows(dtype: torch.dtype) -> None:
    check((chosen, copied, put, by_sequence_and_row), (2, 3, 16, 8), 4, ([3, 5], [7, 0]), dtype)


def test_rows_of_sequences() -> None:
    """Each sequence has a position of its own, from which its rows follow one another."""
    program = check((by_sequence_and_row,), (2, 3, 16, 8), 4, ([3, 5], [7, 0]), torch.float32)
    assert [each.part for each in program.report.launches if each.part] == ["rows"]


@pytest.mark.slow
def test_several_rows_in_pages() -> None:
    program = check((paged_rows,), (2, 3, 16, 8), 4, ([3, 5], [7, 0]), torch.bfloat16)
    assert [each.part for each in program.report.launches if each.part] == ["rows"]


def test_dynamic_rows() -> None:
    """Calls write as many rows as each has: also one, or more than there are places."""
    counts, calls = (4, 1, 16, 23, 3), ([3], [15], [0], [-5], [14])
    program = check((chosen, chosen), (2, 3, 16, 8), counts, calls, torch.bfloat16)
    assert [each.part for each in program.report.launches if each.part] == ["rows"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "outside"),
    [
        (copied, [[13, 0], [-1, 0], [2**40, 0]]),
        (put, [[13, 0], [-17, 0]]),
        (by_sequence_and_row, [[0, 13], [13, 0], [-17, 0]]),
        (paged_rows, []),
    ],
)
def test_dynamic_rows_at_places(write: Write, outside: list[list[int]]) -> None:
    """Places beyond the cache are errors of the call, whatever its number of rows."""
    counts, calls = (4, 1, 16, 7), ([3, 5], [15, 2], [0, 0], [9, 1])
    program = check((write,), (2, 3, 16, 8), counts, calls, torch.bfloat16)
    assert [each.part for each in program.report.launches if each.part] == ["rows"]
    others = [np.ones((2, 3, count, 8), ml_dtypes.bfloat16) for count in (4, 16)]
    with program.session() as session:
        for at in outside:
            with pytest.raises(RunError, match="rows must be written to places 0 to 15"):
                session.main(np.array(at), *others)
        session.main(np.array([12, 12]), *others)


@pytest.mark.slow
def test_two_dynamic_numbers() -> None:
    """Rows at the same places, but not as many, are written apart."""

    class Two(torch.nn.Module):
        def forward(self, at: Tensor, rows: Tensor, others: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
            return chosen(caches[0], rows, at), chosen(caches[1], others, at)

    caches = [torch.zeros(1, 2, 16, 8) for _ in range(2)]
    given = torch.tensor([3]), torch.ones(1, 2, 5, 8), torch.ones(1, 2, 7, 8), *caches
    dynamic = (None, {2: DIM}, {2: torch.export.Dim("others", min=2, max=4096)}, (None, None))
    program = mxcomp.torch.compile(Two(), given, dynamic_shapes=dynamic)
    assert [each.part for each in program.report.launches if each.part] == ["rows", "rows"]
    for value, expected in zip(program.run(*map(as_numpy, given)), Two()(*given), strict=True):
        np.testing.assert_array_equal(value, expected.numpy())


def drawn_shape(data: st.DataObject) -> tuple[int, int, int, int]:
    """Returns the shape of a cache: sequences, heads, places, and elements of a row."""
    batch, heads, size = (data.draw(st.sampled_from(sizes)) for sizes in ((1, 2, 3), (1, 2, 5), (2, 6, 16, 80)))
    return batch, heads, data.draw(st.integers(2, 160)), size


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.data())
def test_dynamic_sizes(data: st.DataObject) -> None:
    _, _, length, _ = shape = drawn_shape(data)
    counts = [5, *data.draw(st.lists(st.integers(1, length + 9), min_size=3, max_size=3))]
    calls = [[data.draw(st.integers(-9, length + 9))] for _ in counts]
    dtype = data.draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
    program = check((chosen,) * data.draw(st.integers(1, 3)), shape, counts, calls, dtype)
    assert any(each.part == "rows" for each in program.report.launches)


def test_many_rows() -> None:
    """Workgroups share the places of a head: of consecutive rows, and of others."""
    check((chosen, paged_rows), (1, 2, 128, 8), 99, ([3],), torch.float32)


@pytest.mark.slow
def test_many_rows_that_are_nowhere() -> None:
    check((chosen,), (1, 2, 128, 8), 99, ([-5], [40]), torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("at", [-5, -2, 13, 16, 2**40])
def test_places_that_there_are_not(at: int) -> None:
    """A choice by place leaves them out."""
    check((chosen,), (2, 3, 16, 8), 4, ([at],), torch.float32) if -4 < at < 16 else unchanged(at)


def unchanged(at: int) -> None:
    cache = torch.randn(2, 3, 16, 8, generator=GENERATOR)
    arguments = torch.tensor([at]), torch.ones(2, 3, 4, 8), cache
    written, _ = mxcomp.torch.compile(Caches(chosen), arguments).run(*map(as_numpy, arguments))
    np.testing.assert_array_equal(written, cache.numpy())


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.data())
def test_sizes(data: st.DataObject) -> None:
    batch, _, length, _ = shape = drawn_shape(data)
    rows = data.draw(st.integers(1, min(length, 4)) | st.integers(1, length))
    writes = [chosen, copied, put] + [by_sequence_and_row] * (batch > 1) + [equal, paged] * (rows == 1 and batch < 3)
    calls = [data.draw(st.lists(st.integers(0, length - rows), min_size=batch, max_size=batch)) for _ in range(2)]
    check(writes, shape, rows, calls, data.draw(st.sampled_from([torch.float32, torch.bfloat16])))


class Plain:
    """Keeps tensors, and is no module: as caches of transformers are."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.keys, self.values = (
            torch.zeros(2, 2, 8, 4, dtype=dtype),
            torch.randn(2, 2, 8, 4, generator=GENERATOR).to(dtype),
        )
        self.length = torch.tensor(0)


class Stateful(torch.nn.Module):
    """Writes a row for each token that it is given, and returns the sum of all."""

    def __init__(self, registered: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.cache = Plain(dtype)
        for name in ("keys", "values", "length") if registered else ():
            self.register_buffer(name, getattr(self.cache, name), persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        cache = self.cache
        at = cache.length + torch.arange(rows.shape[2])
        cache.length.add_(rows.shape[2])
        cache.keys.index_copy_(2, at, rows)
        cache.values.index_copy_(2, at, 2 * rows)
        return (cache.keys.float() + cache.values.float()).sum(2)


def steps(registered: bool, strict: bool, dtype: torch.dtype) -> Program:
    """Calls two functions that have one state, three times, and once more what is loaded anew."""
    model = Stateful(registered, dtype)
    calls = [torch.randn(2, 2, count, 4, generator=GENERATOR).to(dtype) for count in (3, 1, 1)]
    functions = {
        name: torch.export.export(model, (call,), strict=strict)
        for name, call in zip(("many", "one"), calls, strict=False)
    }
    model.cache.length.zero_()  # torch.export computes with such numbers, where it is not strict
    program = mxcomp.torch.compile(functions)
    names = ("many", "one", "one")
    for _ in range(2):
        reference = Stateful(registered, dtype)
        reference.cache.values.copy_(model.cache.values)
        with program.session() as session:
            for name, call in zip(names, calls, strict=True):
                (found,) = session.run(as_numpy(call), function=name)
                np.testing.assert_allclose(found, reference(call).numpy(), rtol=1e-5, atol=1e-5)
    return program


def test_state() -> None:
    program = steps(False, False, torch.float32)
    assert [each.part for each in program.report.launches if each.part] == ["rows"] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("registered", "strict"), [(True, False), (True, True), (False, True)])
def test_state_of_modules(registered: bool, strict: bool) -> None:
    steps(registered, strict, torch.bfloat16)


class Exchanged(torch.nn.Module):
    """Writes two caches of integers twice each or once, and each becomes the other; others it only writes, or reads, or
    keeps what another one was, is, or never is but a constant."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("one", "other", "given", "written", "same", "left", "right", "first", "table"):
            cache = torch.randint(-99, 99, (2, 2, 8, 4), generator=GENERATOR, dtype=torch.int32)
            self.register_buffer(name, cache, persistent=False)

    def forward(self, at: Tensor, rows: Tensor, given: Tensor) -> tuple[Tensor, ...]:
        one = self.one.index_copy(2, at, rows).index_copy(2, at + 1, 2 * rows)
        other = self.other.index_copy(2, at, 3 * rows)
        before = self.given * 2 + self.left - self.right + self.same * self.first
        left = self.left.clone()
        self.left.copy_(self.right)
        self.right.copy_(left)
        self.first.copy_(2 * self.table)
        self.one.copy_(other)
        self.other.copy_(one)
        self.given.copy_(given)
        both = one + other
        self.written.copy_(both)
        self.same.copy_(both)
        return one + 1, other + 1, before


def test_state_in_any_order() -> None:
    """Buffers that begin unlike, are loaded behind stores of others, or become an argument."""
    model = Exchanged()
    calls = [
        (torch.tensor([at]), *(torch.randint(-99, 99, (2, 2, n, 4), generator=GENERATOR).int() for n in (1, 8)))
        for at in (3, 0, 6)
    ]
    program = mxcomp.torch.compile(model, calls[0])
    assert [each.part for each in program.report.launches if each.part] == ["rows"] * 3
    with program.session() as session:
        for call in calls:
            for found, expected in zip(session.run(*map(as_numpy, call)), model(*call), strict=True):
                np.testing.assert_array_equal(found, expected.numpy())


def test_state_that_cannot_be() -> None:
    class Wide(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(4, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            self.count += x
            return self.count * 2

    with pytest.raises(
        InputError, match=r"the model changes its buffer 'count' of torch.float64: expected one of float32"
    ):
        mxcomp.torch.export(Wide(), (torch.ones(4),))


@pytest.mark.slow
def test_static_cache() -> None:
    """Transformers' own, in a model that is exported with it: a prompt and three tokens."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, rope_parameters=rope, attn_implementation="sdpa",
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.generation_config = GenerationConfig(
        use_cache=True, cache_implementation="static", cache_config={"batch_size": 1, "max_cache_len": 8}
    )
    mxcomp.torch.replace_linears(model, filter=lambda name, _: name != "lm_head")
    exportable = TorchExportableModuleWithStaticCache(model)
    tokens = [5, 9, 3]
    with torch.no_grad():
        functions = {
            name: torch.export.export(
                exportable,
                (),
                {"input_ids": torch.tensor([ids]), "cache_position": torch.arange(len(ids))},
                strict=False,
            )
            for name, ids in (("prefill", tokens), ("decode", tokens[:1]))
        }
    program = mxcomp.torch.compile(functions)
    assert [each.part for each in program.report.launches if each.part == "rows"] == ["rows"] * 4
    with program.session() as session, torch.no_grad():
        (logits,) = session.prefill(np.array([tokens]), np.arange(3))
        for _ in range(4):
            np.testing.assert_allclose(logits[0, -1], model(torch.tensor([tokens])).logits[0, -1], atol=1e-5)
            tokens.append(int(logits[0, -1].argmax()))
            (logits,) = session.decode(np.array([tokens[-1:]]), np.array([len(tokens) - 1]))


def test_places_beyond() -> None:
    """They are errors of the call, after which the program goes on as it was."""
    model = Stateful(False, torch.float32)
    call = torch.randn(2, 2, 3, 4, generator=GENERATOR)
    program = torch.export.export(model, (call,), strict=False)
    model.cache.length.zero_()
    with mxcomp.torch.compile(program).session() as session:
        for _ in range(2):
            session.main(call.numpy())
        for _ in range(2):
            with pytest.raises(
                RunError, match=r"rows must be written to places 0 to 7 of a cache, for .*test_torch_caches"
            ):
                session.main(call.numpy())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "rows", "inside", "outside"),
    [
        (copied, 4, [[0, 99], [12, 99]], [[13, 0], [-1, 0], [2**40, 0]]),
        (put, 1, [[-1, 0], [15, 0]], [[16, 0], [-17, 0]]),
        (by_sequence, 1, [[0, 15], [15, 0]], [[0, 16], [16, 0], [2**40, 0]]),
        (by_sequence_and_row, 3, [[0, 13], [13, 0]], [[0, 14], [14, 0]]),
    ],
)
def test_places(write: Write, rows: int, inside: list[list[int]], outside: list[list[int]]) -> None:
    program = check((write,), (2, 3, 16, 8), rows, inside, torch.float32)
    others = np.ones((2, 3, rows, 8), np.float32), np.ones((2, 3, 16, 8), np.float32)
    with program.session() as session:
        for at in outside:
            with pytest.raises(RunError, match="rows must be written to places 0 to 15"):
                session.main(np.array(at), *others)
        session.main(np.array(inside[0]), *others)


@pytest.mark.slow
def test_arguments_that_a_model_changes() -> None:
    """A buffer of the device gets the new rows; arrays of NumPy stay as they are."""

    class Changing(torch.nn.Module):
        def forward(self, cache: Tensor, rows: Tensor, at: Tensor) -> Tensor:
            cache.index_copy_(2, at, rows)
            return cache.sum(2)

    arguments = torch.zeros(2, 3, 16, 8), torch.ones(2, 3, 1, 8), torch.tensor([3])
    program = mxcomp.torch.compile(torch.export.export(Changing(), arguments, strict=False))
    given = [argument.numpy() for argument in arguments]

    def work(kept: Kept) -> np.ndarray:
        function = runtime.load(program.vmfb, "sim", {}, {}, kept).function("main")
        buffers = function.on_device(given)
        function(buffers)
        return buffers[0].to_host()

    np.testing.assert_array_equal(program.run(*given)[0], 1)
    assert not given[0].any()
    expected = given[0].copy()
    expected[:, :, 3] = 1
    np.testing.assert_array_equal(runtime.on("sim", work), expected)
