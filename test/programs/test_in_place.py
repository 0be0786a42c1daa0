"""Operations that IREE does in place, with operands that are shared or the same, against NumPy; stock IREE is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import made
import ml_dtypes
import pytest
from checking import check
from drawing import Drawing
from elementwise import BINARY, apply
from iree.compiler import ir
from iree.compiler.dialects import arith, scf, tensor
from nodes import Node
from program import Program
from steps_in_place import as_floats, fft, insert, largest, permutation, places, scan, scatter, sort, store, topk, zeros
from steps_matmul import floats

from mxcomp import pipeline
from mxcomp.errors import InputError
from mxcomp.mlir import build
from mxcomp.options import Options
from mxcomp.plugin.emit import emit_plugin
from mxcomp.target import get_target

Make = Callable[[Drawing, Node, Node], Sequence[Node]]


def two_argsorts(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    order = places(x)
    return [*map(as_floats, (*sort(x, order), *sort(y, order), order)), x]


def layers(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """Three sorts, each of what comes out of the one before, with one table of places."""
    order, results = places(x), []
    for _ in range(3):
        values, ids = sort(x, order, descending=True)
        x = apply(BINARY["add"], x, as_floats(ids))
        results += [values, as_floats(ids)]
    return results


def an_argument_with_its_sort(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    return [x, *sort(x), *sort(y, places(y))[:1]]


def one_tensor_twice(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    order = places(x)
    return list(map(as_floats, (*sort(x, order, order), order)))


def computed(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    total, order = apply(BINARY["add"], x, y), places(x)
    return [*map(as_floats, (*sort(total, order), *sort(total, order, descending=True))), total]


def scatters(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    ids, table = permutation(drawing, x), places(x, "f32")
    return [scatter(x, table, ids, True), scatter(y, table, ids, True), scatter(x, zeros(x), ids), table]


def scatter_into_itself(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    ids = permutation(drawing, x)
    return [scatter(x, x, ids, True), x]


def inserts(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    table = places(x, "f32")
    return [insert(x, table, 0, 1, 2), insert(y, table, 1, 2, 2), table]


def insert_into_itself(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    total = apply(BINARY["add"], x, y)
    return [insert(x, x, 0, 1, 2), insert(total, total, 0, 1, 2), x]


def scans(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    return [scan(x, x), scan(y, x), scan(scan(x, y), y), scan(x, y, False), scan(x, x, False), x]


def stores(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    table = places(x, "f32")
    return [store(x, table), store(y, table), store(x, x), table]


def part(node: Node) -> Node:
    """All columns of a tensor but the first."""
    rows, columns = build.static_sizes(node.ir)[0], node.shape[1] - 1
    kind, outer = build.tensor_type([rows, columns], node.kind), build.dynamic_sizes(node.ir)
    sizes = [ir.ShapedType.get_dynamic_size() if rows is None else rows, columns]
    value = tensor.ExtractSliceOp(kind, node.ir, [], outer, [], [0, 1], sizes, [1, 1]).result
    return node.at(value, lambda data: data[:, 1:])


def extended(node: Node) -> Node:
    """f32 that were bf16."""
    wide, narrow = (build.tensor_type(build.static_sizes(node.ir), kind) for kind in ("f32", "bf16"))
    assert (node.data.astype(ml_dtypes.bfloat16) == node.data).all()
    cut = build.elementwise(narrow, [node.ir], lambda x: arith.TruncFOp(narrow.element_type, x).result)
    return node.at(build.elementwise(wide, [build.barrier(cut)], lambda x: arith.ExtFOp(wide.element_type, x).result))


def gathered(node: Node, ids: Node) -> Node:
    init = build.empty(ir.RankedTensorType(node.ir.type), build.dynamic_sizes(node.ir))
    first = {"dimension_map": ir.DenseI64ArrayAttr.get([0])}
    value = ir.Operation.create("iree_linalg_ext.gather", [node.ir.type], [node.ir, ids.ir, init], first).result
    return node.at(value, lambda data: data[ids.data[:, 0].astype(int)])


def load(source: Node, target: Node) -> Node:
    """Columns the other way round."""
    op = ir.Operation.create("iree_linalg_ext.map_load", [target.ir.type], [source.ir, target.ir], regions=1)
    block = op.regions[0].blocks.append(*[ir.IndexType.get()] * 2, arg_locs=[op.location] * 2)
    with ir.InsertionPoint(block):
        row, column = block.arguments
        place = arith.SubIOp(build.constant_index(source.shape[1] - 1), column).result
        none = arith.ConstantOp(ir.F32Type.get(), 0.0).result
        ir.Operation.create("iree_linalg_ext.yield", [], [row, place, none])
    return source.at(op.result, lambda data: data[:, ::-1])


def _computed(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """What IREE would compute in kernels that read it or write over it, three columns wide."""
    ids = permutation(drawing, y)
    return [zeros(part(x)), extended(part(x)), part(y), gathered(part(y), ids)]


def stores_into_what_is_computed(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    source, table = part(x), places(part(x), "f32")
    targets = _computed(drawing, x, y)
    stored = [store(source, each) for each in targets]
    return [*stored, store(table, targets[0]), store(zeros(source), zeros(source)), table, *targets]


def loads_of_what_is_computed(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    target, sources = part(x), _computed(drawing, x, y)
    loaded = [load(each, target) for each in (*sources, places(target, "f32"))]
    return [*loaded, load(x, zeros(x)), *sources, target]


def over_parts(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """What is written over is a part of another tensor, which is read as well."""
    ids, wide, thin = permutation(drawing, x), part(x), part(y)
    found = [scatter(wide, thin, ids), scan(wide, thin), *sort(thin), *sort(gathered(thin, ids))]
    return [*found, *fft(part(wide), part(thin)), thin, y]


def over_twins(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """Tensors that are computed alike, of which IREE makes one."""

    def tables() -> tuple[Node, Node]:
        return places(x, "f32"), places(x, "f32")

    ids, order = permutation(drawing, x), places(x)
    sorted_ = [*sort(x, order, places(x)), *sort(part(y), places(part(y)), places(part(y)))]
    found = [scan(*tables()), store(*tables()), scatter(*tables(), ids), insert(*tables(), 0, 1, 2), *fft(*tables())]
    return [*map(as_floats, (*sorted_, *found, order)), y]


def transforms(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    return [*fft(x, zeros(x)), *fft(x, x, False), *fft(y, places(y, "f32")), x]


def topks(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    found = [*topk(x, 2), *topk(y, 3, "topk_v2"), *topk(x, 1)]
    return [*map(as_floats, found), x]


def beside_a_barrier(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """What went into a barrier is written over, and what came out of it is read."""
    total = apply(BINARY["add"], x, y)
    hidden = total.at(build.barrier(total.ir))
    (ordered,) = sort(total)
    return [apply(BINARY["add"], ordered, hidden)]


def maxima(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """Of two tensors, from the same constants."""
    return [*map(as_floats, (*largest(x), *largest(y))), x]


def argsort(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """Places alone, of an argument and of a sum, and values alone."""
    order, total = places(x), apply(BINARY["add"], x, y)
    return [as_floats(sort(x, order)[1]), as_floats(sort(total, order)[1]), sort(y, order)[0]]


def three_of_which_two(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    first, _, third = sort(x, places(x), y)
    return [first, third]


def largest_alone(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """Places alone of the largest, and values alone."""
    return [as_floats(topk(x, 4)[1]), topk(y, 3, "topk_v2")[0]]


def of_nothing(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """Sorts of constants, which IREE moves into an initialiser each, all of them with one table."""
    table, none = places(x, "f32"), zeros(x)
    tables = [*sort(table, places(x)), *sort(table, descending=True), *sort(none, descending=True), table, none]
    for each in tables:
        x = apply(BINARY["add"], x, as_floats(each))
    return [x]


def two_tables(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    return [as_floats(node) for each in (x, y) for node in sort(each, places(each))]


PARTS: tuple[Make, ...] = (argsort, three_of_which_two, largest_alone, of_nothing, an_argument_with_its_sort)
MAKES: tuple[Make, ...] = (
    two_argsorts, two_tables, layers, an_argument_with_its_sort, one_tensor_twice, computed, scatters,
    scatter_into_itself, inserts, insert_into_itself, scans, stores, transforms, topks, beside_a_barrier, maxima,
    stores_into_what_is_computed, loads_of_what_is_computed, over_parts, over_twins,
)  # fmt: skip


def _program(make: Make, dynamic: bool, shape: tuple[int, int] = (5, 4), rounds: int = 1) -> Program:
    def body(drawing: Drawing) -> Sequence[Node]:
        x, y = (floats(drawing, shape, "f32", "argument", (0,) if dynamic else ()) for _ in range(2))
        return make(drawing, x, y)

    return made.program(body, rounds=rounds)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__)
def test_shared(make: Make, dynamic: bool) -> None:
    found = check(_program(make, dynamic))
    assert found.kind == "right", found.message


def test_called_again() -> None:
    """What a reduction starts from is there once more."""
    found = check(_program(maxima, False, rounds=2))
    assert found.kind == "right", found.message


def test_constant_that_is_quantised() -> None:
    """What is computed of constants, and kept for run time, is written over a copy of them."""

    def body(drawing: Drawing) -> Sequence[Node]:
        x, y = (made.floats(drawing, 4, 64, place="constant") for _ in range(2))
        return [made.again(drawing, insert(y, x, 0, 16, 32)), x, y]

    found = check(made.program(body))
    assert found.kind == "right", found.message


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("make", PARTS, ids=lambda make: make.__name__)
def test_rows_of_32(make: Make, dynamic: bool) -> None:
    """IREE has threads copy shorter rows into registers."""
    found = check(_program(make, dynamic, (2 if dynamic else 16, 32)))
    assert found.kind == "right", found.message


def scan_of_one_value(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """A scan of what its kernel would fill and read, in memory that a workgroup shares."""
    return [scan(zeros(x), apply(BINARY["add"], x, y))]


def exclusive_scan(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    return [scan(zeros(x), apply(BINARY["add"], x, y), False)]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_scans_of_one_value(dynamic: bool) -> None:
    found = check(_program(scan_of_one_value, dynamic, (65, 32)))
    assert found.kind == "right", found.message


def test_stock_iree_fills_what_a_scan_reads_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tuple(each for each in pipeline.BUILDING_PASSES if each != "mxcomp-legalise-filled-scans")
    monkeypatch.setattr(pipeline, "BUILDING_PASSES", kept)
    found = check(_program(scan_of_one_value, False, (65, 32)))
    assert "reads LDS that another wave writes" in found.message


def in_a_loop(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """A sort in a loop of what comes from outside of it."""
    order = places(x)
    bounds = [build.constant_index(number) for number in (0, 3, 1)]
    op = scf.ForOp(*bounds, iter_args=[x.ir])
    ids = Node(order.ir, order.data, "i32")
    with ir.InsertionPoint(op.body):
        inner = x.at(op.inner_iter_args[0])
        _, ids = sort(y, order)
        scf.YieldOp([apply(BINARY["add"], inner, as_floats(ids)).ir])
    return [Node(op.results[0], x.data + 3 * ids.data, "f32"), y]


def test_in_a_loop() -> None:
    found = check(_program(in_a_loop, False))
    assert found.kind == "right", found.message


def constants(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """What writes over constants, in a loop too."""
    table, order = floats(drawing, x.shape, "f32", "argument", place="constant"), places(x)
    ids = permutation(drawing, x)
    written = [insert(x, table, 0, 1, 2), scan(x, table), store(x, table), scatter(x, table, ids), *fft(x, table)]
    return [*map(as_floats, sort(table, order, x)), *written, *in_a_loop(drawing, x, table)]


def in_dead_code(drawing: Drawing, x: Node, y: Node) -> list[Node]:
    """A sort that something reads of which nothing comes, and one whose values nothing reads."""
    order = places(x)
    as_floats(sort(y, order)[1])
    return [as_floats(sort(x, order)[1])]


@pytest.mark.parametrize("rows", [5, 17], ids=["in kernels", "in memory"])
def test_constants(rows: int) -> None:
    found = check(_program(constants, False, (rows, 4)))
    assert found.kind == "right", found.message


def test_in_dead_code() -> None:
    found = check(_program(in_dead_code, True, (2, 32)))
    assert found.kind == "right", found.message


NEEDED = {
    "mxcomp-place-results": (two_argsorts, True),
    "mxcomp-keep-for-callers": (an_argument_with_its_sort, False),
    "mxcomp-legalise-sorts": (one_tensor_twice, False),
    "mxcomp-legalise-producers": (stores_into_what_is_computed, False),
    "mxcomp-legalise-topk": (topks, False),
    "mxcomp-legalise-exclusive-scans": (scans, True),
}
"""Passes, and what IREE gets wrong or cannot compile without them; one that passes is a pass to be taken out."""


@pytest.mark.parametrize("name", NEEDED)
def test_stock_iree_needs_the_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for group in ("BUILDING_PASSES", "DISPATCH_PASSES"):
        monkeypatch.setattr(pipeline, group, tuple(each for each in getattr(pipeline, group) if each != name))
    assert check(_program(*NEEDED[name])).kind != "right"


def test_stock_iree_mixes_rows_of_an_argsort_up(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tuple(each for each in pipeline.BUILDING_PASSES if each != "mxcomp-keep-sorted")
    monkeypatch.setattr(pipeline, "BUILDING_PASSES", kept)
    assert check(_program(argsort, False, (16, 32))).kind == "wrong"


def test_stock_iree_mixes_initialisers_up(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tuple(each for each in pipeline.DISPATCH_PASSES if each != "mxcomp-place-results")
    monkeypatch.setattr(pipeline, "DISPATCH_PASSES", kept)
    assert check(_program(of_nothing, False, (16, 32))).kind in ("wrong", "crash")


def test_a_loop_needs_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tuple(each for each in pipeline.DISPATCH_PASSES if each != "mxcomp-keep-for-steps")
    monkeypatch.setattr(pipeline, "DISPATCH_PASSES", kept)
    assert check(_program(in_a_loop, False)).kind == "wrong"


def sorted_beside_a_product(make: Make) -> Program:
    """A scaled matmul, and operations in place."""

    def body(drawing: Drawing) -> Sequence[Node]:
        x, y = (floats(drawing, (5, 4), "f32", "argument") for _ in range(2))
        return [made.result(drawing, 64, 64), *make(drawing, x, y)]

    return made.program(body)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (two_argsorts, "may write over a tensor"),
        (two_tables, "may write over a tensor"),
        (argsort, "may mix rows up"),
        (an_argument_with_its_sort, "may write over a tensor"),
        (insert_into_itself, "for one buffer"),
        (over_twins, "for one buffer"),
        (stores_into_what_is_computed, "cannot compile this together"),
        (scan_of_one_value, "race over this scan"),
        (exclusive_scan, "race over this scan"),
    ],
)
def test_no_plugin(make: Make, reason: str, tmp_path: Path) -> None:
    """A plugin leaves them to a stock iree-compile."""
    flags = get_target("gfx950").iree_flags
    with pytest.raises(InputError, match=f"{reason}.* compile the model with mxcomp-compile"):
        emit_plugin(sorted_beside_a_product(make).text, Options.make(), tmp_path, flags, flags)


def test_a_plugin_beside_one_sort(tmp_path: Path) -> None:
    flags = get_target("gfx950").iree_flags
    one = sorted_beside_a_product(lambda drawing, x, y: [as_floats(node) for node in sort(x, places(x))])
    emit_plugin(one.text, Options.make(), tmp_path, flags, flags)
    assert (tmp_path / "mxcomp.rsp").exists()
