"""Orders of workgroups: every program computes the same in each, and workgroups of an XCD share what they ought to."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from iree.compiler import ir
from modules import Matmul
from shapes import Shaped
from spread import quick_if
from test_epilogues import EPILOGUES, Epilogue, factor_of, text_of
from test_epilogues import check as check_epilogue
from test_inner_tiles import BATCHED, of
from test_requantised import check as check_mlp
from test_requantised import mlp, weights

import mxcomp
import mxcomp.ir as mx
from mxcomp.layout.order import PLAIN_ORDER, Order
from mxcomp.matching.decision import decide
from mxcomp.passes import encode, order_workgroups
from mxcomp.plans.plan import Launched
from mxcomp.registry import Registry
from mxcomp.selection import sharing
from mxcomp.sim.device import Device
from mxcomp.sim.program import program_of
from mxcomp.sim.timing.examination import Examination, examine
from mxcomp.target import get_target

CUS = get_target("gfx950").cus

SLOW = pytest.mark.slow


def decide_in(order: Order, op: ir.Operation, decision: Launched) -> None:
    decide(op, replace(decision, order=order))


@pytest.fixture
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Order]:
    """The one that all matmuls are computed in; loops over workgroups are found in each program."""
    found: Order = request.param
    given: list[Order] = []
    permute = order_workgroups._permute

    def permuted(loop: ir.Operation, order: Order) -> None:
        given.append(order)
        permute(loop, order)

    monkeypatch.setattr(encode, "decide", partial(decide_in, found))
    monkeypatch.setattr(order_workgroups, "_permute", permuted)
    yield found
    assert set(given) == {found} - {PLAIN_ORDER}


def in_orders(*orders: Order) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("order", orders, indirect=True, ids=str)


@pytest.mark.parametrize(
    ("shaped", "ukernel", "runs"),
    [
        (Shaped(300, 200, 544), of("m64_n64"), []),
        (Shaped(64, 128, 256, dynamic="mnk"), of("m32_n32"), [(1, 1, 32), (130, 260, 544)]),
        (Shaped(70, 132, 544, batch=3, orders=BATCHED), of("m32_n64"), []),
        pytest.param(Shaped(300, 600, 96, dynamic="m"), "fastest", [(1, 600, 96), (700, 600, 96)], marks=SLOW),
        pytest.param(Shaped(300, 600, 96, batch=2, orders=BATCHED, dynamic="m"), "fastest", [], marks=SLOW),
        pytest.param(Shaped(1, 600, 96), "fastest", [], marks=SLOW),
        pytest.param(Shaped(600, 1, 96), "fastest", [], marks=SLOW),
        pytest.param(Shaped(300, 600, 96), "none", [], marks=SLOW),
    ],
    ids=lambda value: str(value) if isinstance(value, Shaped) else "",
)
@in_orders(PLAIN_ORDER, Order(8, 3), Order(4, 2))
def test_shapes(order: Order, shaped: Shaped, ukernel: str, runs: list[tuple[int, int, int]]) -> None:
    """Padded, dynamic and batched; loops over workgroups that IREE makes of fewer dimensions; without a ukernel."""
    program = mxcomp.compile(shaped.text(), ukernels=ukernel)
    for m, n, k in runs or ((shaped.m, shaped.n, shaped.k),):
        again = replace(shaped, m=m, n=n, k=k)
        (result,) = program.run(*again.inputs)
        assert again.error(result) <= again.bound


@pytest.mark.parametrize("epilogue", quick_if(lambda epilogue: epilogue is EPILOGUES[0], EPILOGUES), ids=str)
@in_orders(Order(8, 3))
def test_epilogues(order: Order, epilogue: Epilogue) -> None:
    matmul = Matmul(300, 600, 96)
    factor = factor_of(matmul)
    program = mxcomp.compile(text_of(matmul, epilogue, factor), ukernels=of("m64_n64"))
    check_epilogue(program, matmul, epilogue, factor)


@SLOW
@in_orders(Order(8, 3))
def test_requantised(order: Order) -> None:
    mats = weights(128, 768)
    check_mlp(mxcomp.compile(str(mlp(*mats, 600)), fuse_quantisers="on"), mats, 600)


@pytest.mark.parametrize(
    ("m", "n", "size"),
    [
        (2400, 2560, "m64_n128"),
        pytest.param(8192, 1280, "m192_n256", marks=SLOW),
        pytest.param(10000, 28672, "m256_n256", marks=SLOW),
    ],
)
@in_orders(PLAIN_ORDER, Order(8, 3))
def test_an_xcd_loads_what_selection_counts(order: Order, m: int, n: int, size: str) -> None:
    """Bytes that an XCD loads for the first time, by the addresses of the compiled kernel."""
    k = 1024
    work = examined(m, n, k, of(size))
    with ir.Context(), ir.Location.unknown():
        ukernel = Registry(get_target("gfx950"))[of(size)]
    tile_m, tile_n, _ = ukernel.tile
    grid = 1, -(-m // tile_m), -(-n // tile_n)
    assert work.workgroups == grid[1] * grid[2]
    block = k * (1 / 2 + 1 / 32)
    expected = [
        shared.fabric[0] @ [tile_m * block, tile_n * block]
        for shared in sharing.batches(grid, work.resident, (order,), work.target)
    ]
    assert [batch.fabric_bytes for batch in work.batches] == pytest.approx(expected, rel=0.01)


def examined(m: int, n: int, k: int, ukernel: str) -> Examination:
    """A launch of the matmul's kernel."""

    def matmul(a: ir.Value, a_scale: ir.Value, b: ir.Value, b_scale: ir.Value) -> ir.Value:
        return mx.scaled_matmul(mx.operand(a, a_scale, "E2M1"), mx.operand(b, b_scale, "E2M1"))

    types = [f"{rows}x{size}xi8" for rows in (m, n) for size in (k // 2, k // 32)]
    vmfb = mxcomp.compile(mx.module(matmul, *types), ukernels=ukernel).vmfb
    device = Device(memory_bytes=8 << 30, checks=())
    for at in re.finditer(b"\x7fELF", vmfb):
        for kernel in device.load(vmfb[at.start() :]).kernels.values():
            if any("mfma" in i.mnemonic for i in program_of(kernel).instructions.values()):
                buffers = [device.memory.alloc(5 << 28, fill=False) for _ in range(6)]
                kernarg = b"".join(struct.pack("<Q", buffer.address) for buffer in buffers)
                tile_m, tile_n = map(int, re.findall(r"_[mn](\d+)", ukernel))
                return examine(device, kernel, (-(-m // tile_m) * -(-n // tile_n), 1, 1), kernarg)
    raise AssertionError("no kernel with matrix instructions")
