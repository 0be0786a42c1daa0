"""LHS or RHS read as it is stored, on the simulator with all checks on; and where that is chosen, or cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from iree.compiler import ir
from modules import FP4, Matmul
from shapes import Shaped
from spread import quick_if
from test_epilogues import EPILOGUES, Epilogue, factor_of, text_of
from test_epilogues import check as check_epilogue
from test_inner_tiles import BATCHED, check

import mxcomp
from mxcomp.layout import LHS, RHS
from mxcomp.layout.problem import Problem
from mxcomp.options import Options
from mxcomp.plans import row_operand
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.plan import Proposal
from mxcomp.plans.row_operand import RowOperand
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry
from mxcomp.run import runtime
from mxcomp.selection import ranking
from mxcomp.sim.schedule import ORDERS
from mxcomp.target import get_target
from mxcomp.ukernels import intrawave

SLOW = pytest.mark.slow
INSTANCES = [instance for instance in intrawave.INSTANCES if instance.tile.lhs_row_major]
NAMES = [instance.name for instance in INSTANCES]
OF_LHS, OF_RHS = ([each.name for each in INSTANCES if each.tile.for_rhs == for_rhs] for for_rhs in (False, True))
ROWS, RHS_ROWS = OF_LHS[0], OF_RHS[0]
E4M3 = "f8E4M3FN"


@pytest.mark.parametrize("ukernel", NAMES)
@pytest.mark.parametrize(
    "shaped",
    [
        Shaped(1, 330, 1024),
        Shaped(330, 1, 1024),
        Shaped(330, 280, 1536),
        pytest.param(Shaped(256, 256, 1024), marks=SLOW),
        pytest.param(Shaped(319, 513, 3072), marks=SLOW),
    ],
    ids=str,
)
def test_sizes(shaped: Shaped, ukernel: str) -> None:
    """Two K tiles and more, rows and columns beyond whole tiles; one row, and one column, of several tiles."""
    check(shaped, ukernel)


@pytest.mark.slow
@pytest.mark.parametrize("ukernel", OF_LHS)
def test_constant_rhs(ukernel: str) -> None:
    check(Shaped(649, 17, 2048, constant_rhs=True), ukernel)


@pytest.mark.parametrize(
    ("ukernel", "side", "dispatches"),
    [
        (ROWS, "LHS", ["pack_rhs", "pack_lhs_scale", "pack_rhs_scale", "matmul"]),
        (RHS_ROWS, "RHS", ["pack_lhs", "pack_rhs_scale", "pack_lhs_scale", "matmul"]),
    ],
)
def test_nothing_of_it_is_packed(ukernel: str, side: str, dispatches: list[str]) -> None:
    program = mxcomp.compile(Shaped(40, 72, 1024).text(), ukernels=ukernel, compile_to="executable-configurations")
    (matmul,) = program.report.matmuls
    assert matmul.dispatches == dispatches
    assert f"{side} is read as it is stored, by {ukernel}" in (matmul.note or "")


@pytest.mark.parametrize("ukernel", NAMES)
@pytest.mark.parametrize("schedule", [ORDERS[0], *(pytest.param(each, marks=SLOW) for each in ORDERS[1:])])
def test_schedules(schedule: str, ukernel: str) -> None:
    """However waves interleave, and however late data comes."""
    shaped = Shaped(260, 40, 1536)
    program = mxcomp.compile(shaped.text(), ukernels=ukernel)
    (result,) = runtime.run(program.vmfb, None, shaped.inputs, "sim", checks="all", schedule=schedule, seed=1)
    assert shaped.error(result) <= shaped.bound


@pytest.mark.parametrize("ukernel", [NAMES[0], *(pytest.param(name, marks=SLOW) for name in NAMES[1:])])
@pytest.mark.parametrize("epilogue", quick_if(lambda epilogue: epilogue is EPILOGUES[0], EPILOGUES), ids=str)
def test_epilogues(epilogue: Epilogue, ukernel: str) -> None:
    matmul = Matmul(40, 300, 1024)
    factor = factor_of(matmul)
    program = mxcomp.compile(text_of(matmul, epilogue, factor), ukernels=ukernel)
    check_epilogue(program, matmul, epilogue, factor)


@pytest.mark.parametrize(
    ("shaped", "reason"),
    [
        (Shaped(40, 72, 512), "K = 512 is below 1024"),
        (Shaped(40, 72, 1280), "K = 1280 is not a multiple of 512"),
        (Shaped(40, 72, 1024, dynamic="m"), "it takes static sizes without a batch"),
        (Shaped(40, 72, 1024, batch=2, orders=BATCHED), "it takes static sizes without a batch"),
        (Shaped(40, 72, 1024, types=(E4M3, FP4)), f"it takes {FP4} × {FP4}, not {E4M3} × {FP4}"),
        (Shaped(40, 72, 1024, orders=("kir", "rki", "rk", "rk")), "LHS is no argument of the program, row-major"),
        (Shaped(40, 72, 1024, byte_sliced="0"), "LHS is no argument of the program, row-major"),
    ],
    ids=lambda value: str(value) if isinstance(value, Shaped) else "",
)
def test_not_taken(shaped: Shaped, reason: str) -> None:
    """By name neither."""
    _check_not_taken(shaped, ROWS, reason)


@pytest.mark.parametrize(
    ("shaped", "reason"),
    [
        (Shaped(40, 72, 512), "K = 512 is below 1024"),
        (Shaped(40, 72, 1024, dynamic="m"), "it takes static sizes without a batch"),
        (Shaped(40, 72, 1024, types=(FP4, E4M3)), f"it takes {FP4} × {FP4}, not {E4M3} × {FP4}"),
        (Shaped(40, 72, 1024, orders=("rki", "kir", "rk", "rk")), "RHS is no argument of the program, row-major"),
        (Shaped(40, 72, 1024, constant_rhs=True), "RHS is no argument of the program, row-major"),
    ],
    ids=lambda value: str(value) if isinstance(value, Shaped) else "",
)
def test_rhs_not_taken(shaped: Shaped, reason: str) -> None:
    _check_not_taken(shaped, RHS_ROWS, reason)


def _check_not_taken(shaped: Shaped, ukernel: str, reason: str) -> None:
    program = mxcomp.compile(shaped.text(), ukernels=ukernel, compile_to="executable-configurations")
    (matmul,) = program.report.matmuls
    assert matmul.ukernel is None
    assert reason in (matmul.reason or ""), matmul.reason


def test_what_is_done_in_its_place() -> None:
    shaped = Shaped(40, 72, 1024, byte_sliced="0")
    (result,) = mxcomp.compile(shaped.text(), ukernels=ROWS).run(*shaped.inputs)
    assert shaped.error(result) <= shaped.bound


@pytest.mark.parametrize(
    ("sizes", "given", "taken"),
    [
        ((4096, 4096, 4096), (LHS,), "m256_n256_k512_row_major_a_intrawave"),
        ((10000, 16384, 16384), (LHS,), "m320_n256_k512_row_major_a_intrawave"),
        ((10000, 16384, 16384), (LHS, RHS), "m256_n320_k512_row_major_b_intrawave"),
        ((16384, 10000, 16384), (LHS, RHS), "m256_n256_k512_row_major_a_intrawave"),
        ((10000, 16384, 16384), (), ""),
        ((1024, 8192, 8192), (LHS,), ""),
        ((1024, 8192, 8192), (RHS,), "m256_n256_k512_row_major_b_intrawave"),
        ((2048, 8192, 8192), (RHS,), "m256_n256_k512_row_major_b_intrawave"),
        ((64, 8192, 8192), (LHS, RHS), ""),
    ],
)
def test_the_faster_way_is_chosen(sizes: tuple[int, int, int], given: tuple[int, ...], taken: str) -> None:
    """With packing counted of what is an argument, of which one can be spared."""
    with ir.Context(), ir.Location.unknown():
        registry, options, problem = Registry(get_target("gfx950")), Options.make(), Problem(*sizes, INSTANCES[0].types)
        best = ranking.fastest(problem, registry)[0]
        packed = DataTiled().by(best.ukernel)
        objections = {side: "" if side in given else "it is none" for side in (LHS, RHS)}
        proposal = row_operand.choose(packed, problem, objections, registry, options, 4)
        found = proposal.plan if isinstance(proposal, Proposal) and proposal.is_cheaper else packed
        us = {"": best.us}
        for side, names, multiplied in ((LHS, OF_LHS, problem), (RHS, OF_RHS, problem.flipped)):
            own = [ranking.candidate(registry[name], multiplied) for name in names] if side in given else []
            saved = row_operand.packing_us(options.target, problem, side)
            us |= {each.ukernel.name: each.us - saved for each in own if each is not None}
    fastest = min(us, key=us.__getitem__)
    assert fastest.endswith(taken)
    assert isinstance(found, RowOperand) == bool(taken) == bool(fastest)
    assert isinstance(found, Tiled)
    assert found.transposed == taken.endswith("_row_major_b_intrawave")
    assert found.ukernel == (fastest or best.ukernel.name)


def test_what_a_stock_compiler_is_given_is_packed() -> None:
    shaped = Shaped(4096, 4096, 4096)
    program = mxcomp.compile(shaped.text(), compile_to="input")
    (matmul,) = program.report.matmuls
    assert matmul.ukernel not in NAMES


@pytest.mark.parametrize("ukernel", [ROWS, RHS_ROWS])
def test_rows_do_not_meet(ukernel: str) -> None:
    """NaN in a row stays in it, also where that is the first of a tile."""
    shaped = Shaped(257, 16, 1024)
    program = mxcomp.compile(shaped.text(), ukernels=ukernel)
    inputs = [array.copy() for array in shaped.inputs]
    inputs[2].reshape(257, -1)[256] = np.int8(-1)  # the scale 255 is NaN
    (result,) = program.run(*inputs)
    assert np.isnan(result[256]).all()
    assert np.isfinite(result[:256]).all()
