"""What a launch would do: traces against the engines, and sharing against all workgroups' traces."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import checkout
import numpy as np
import pytest
from corpus.device import Launch, Machine
from corpus.flydsl import KERNELS as FLYDSL
from corpus.operands import operand
from corpus.triton import KERNELS as TRITON
from kernels_from_ir import code_object

from mxcomp.profiling import Estimate
from mxcomp.sim import Device, LaunchStats
from mxcomp.sim.counters import Counters
from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.program import Program
from mxcomp.sim.timing import trace
from mxcomp.sim.timing.aiter import Gemm, Kernels
from mxcomp.sim.timing.estimates import estimate
from mxcomp.sim.timing.examination import Examination, Examiner
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.sim.timing.probes import LINE_BYTES
from mxcomp.sim.timing.sharing import Sharing
from mxcomp.sim.timing.trace import Recorder, Trace, TracedProgram
from mxcomp.sim.timing.workgroup import replayed
from mxcomp.target import get_target

XCDS = get_target("gfx950").xcds

CASES = [(TRITON, "scaled_e2m1_e2m1_mfma16_stages3"), (TRITON, "scaled_e4m3_e2m1_mfma32_stages2"),
         (FLYDSL, "scaled_e2m1_e2m1_staged"), (FLYDSL, "scaled_e4m3_e4m3")]  # fmt: skip


class TracingEngine:
    """An engine that keeps traces. It executes what branches and addresses depend on, and stores nothing.

    Kernels that branch on what they or other workgroups have stored do not end, or go another way.
    """

    name = "trace"

    def __init__(self, make: Callable[[Program], TracedProgram] = TracedProgram.of) -> None:
        self.traces: dict[Workgroup, Trace] = {}
        self._make = make

    def run(self, dispatch: Dispatch) -> dict[Workgroup, Counters]:
        """Leaves `traces` of the workgroups."""
        program = self._make(dispatch.program)
        with np.errstate(all="ignore"):
            self.traces = {number: Recorder(dispatch, number, program).run() for number in dispatch.workgroups}
        return {number: trace.counters for number, trace in self.traces.items()}


def with_everything(program: Program) -> TracedProgram:
    """Leaves out nothing that a trace might not need, but for stores and waits."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trace, "essential", lambda some: frozenset(i.offset for i in some if i.mnemonic != "s_waitcnt"))
        return TracedProgram.of.__wrapped__(program)


class Tracing(Machine):
    """Has each launch examined and traced before it is executed, its first workgroup with all instructions as well."""

    def __init__(self) -> None:
        super().__init__("fast", "forward")
        self.examined: list[tuple[Examination, TracingEngine, LaunchStats]] = []

    def launch(self, code: Iterable[bytes], launches: Iterable[Launch], **options: Any) -> list[LaunchStats]:
        kernels = {name: kernel for elf in code for name, kernel in self._module(elf).kernels.items()}
        found = []
        for each in launches:
            examiner, tracer, whole = Examiner(), TracingEngine(), TracingEngine(with_everything)
            for engine, workgroups in ((examiner, None), (tracer, None), (whole, [(0, 0, 0)])):
                self.device.launch(
                    kernels[each.kernel], each.grid, each.block, each.kernarg, each.dynamic_lds, workgroups,
                    engine=engine,
                )  # fmt: skip
            assert whole.traces[0, 0, 0].goes_like(tracer.traces[0, 0, 0])
            (stats,) = super().launch(code, [each], **options)
            self.examined.append((examiner.examination, tracer, stats))
            found.append(stats)
        return found


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case[1])
def traced(request: pytest.FixtureRequest) -> tuple[Examination, TracingEngine, LaunchStats]:
    """A scaled matmul of 2 × 3 tiles of 128 × 128, or 4 × 6 of 64 × 64."""
    kernels, name = request.param
    kernel, machine, rng = kernels[name], Tracing(), np.random.default_rng(3)
    m, n, k = 256, 384, 512
    a, b = operand(rng, kernel.constants["a_format"], m, k), operand(rng, kernel.constants["b_format"], n, k)
    inputs = {"a": a.packed, "b": b.packed, "a_scale": a.scales, "b_scale": b.scales}
    kernel.run(machine, inputs, {"c": np.empty((m, n), np.float32)}, {"m": m, "n": n, "k": k})
    (found,) = machine.examined
    return found


def test_counters_are_the_engines(traced: tuple[Examination, TracingEngine, LaunchStats]) -> None:
    """Of every workgroup, though a trace computes no product and stores nothing."""
    _, tracer, stats = traced
    assert len(stats.workgroups) > 4
    for number, counters in stats.workgroups.items():
        assert tracer.traces[number].counters == counters


def test_sharing_is_that_of_all_workgroups(traced: tuple[Examination, TracingEngine, LaunchStats]) -> None:
    """Bytes loaded once by each XCD, and by the chip."""
    work, tracer, _ = traced
    loaded = [loads(tracer, number) for number in tracer.traces]
    (batch,) = work.batches
    assert batch.running == len(loaded)
    chip = LINE_BYTES * len(np.unique(np.concatenate(loaded)))
    xcds = [np.unique(np.concatenate(loaded[k::XCDS])) for k in range(min(XCDS, len(loaded)))]
    fabric = LINE_BYTES * sum(map(len, xcds))
    assert (batch.chip_bytes, batch.fabric_bytes) == (chip, fabric)


def loads(tracer: TracingEngine, number: tuple[int, int, int]) -> np.ndarray[Any, Any]:
    """Lines that a workgroup loads."""
    trace = tracer.traces[number]
    codes, accesses = np.concatenate(trace.codes), np.concatenate(trace.accesses)
    chosen = [
        trace.lines[trace.first[access] : trace.first[access + 1]]
        for code, access in zip(codes, accesses, strict=True)
        if access >= 0 and "load" in trace.instructions[code].mnemonic
    ]
    return np.unique(np.concatenate(chosen))


def test_memory_stays_as_it_is(tmp_path: Path) -> None:
    kernels = Kernels(checkout.make(tmp_path))
    device, kernel = kernels._loaded(checkout.TILE_M, checkout.TILE_N)
    before = device.memory.written[: 1 << 20].copy()
    kernels.examine(Gemm(64, 256, 1024, checkout.TILE_M, checkout.TILE_N))
    assert kernel.name == "rows"
    np.testing.assert_array_equal(device.memory.written[: 1 << 20], before)


def test_rows_and_columns_of_a_grid(tmp_path: Path) -> None:
    """Workgroup i, on XCD i % 8, reads 32 rows of A for its y and 128 of B for its x."""
    kernels = Kernels(checkout.make(tmp_path))
    work = kernels.examine(Gemm(32 * 6, 128 * 10, 1024, checkout.TILE_M, checkout.TILE_N))
    (batch,) = work.batches
    a_rows, b_rows, row = 32, 128, 1024 // 2
    assert batch.running == work.workgroups == 60
    assert batch.chip_bytes == (6 * a_rows + 10 * b_rows) * row
    places = [(k % XCDS, k % 10, k // 10) for k in range(60)]
    xs, ys = len({(xcd, x) for xcd, x, _ in places}), len({(xcd, y) for xcd, _, y in places})
    assert batch.fabric_bytes == (ys * a_rows + xs * b_rows) * row
    assert work.load_bytes == (a_rows + b_rows) * row
    assert work.store_bytes == 4 * 256


class Grouped:
    """A survey of a grouped matmul: one stream has the rows of an expert, that of a workgroup's y, the other of A."""

    experts = np.array([0, 0, 0, 1, 1, 3, 3, 4])
    streams = ((0, 0), (1, 0))
    bytes = np.array([1000.0, 10.0])

    def __init__(self, swapped: bool = False) -> None:
        self.swapped = swapped
        self.asked = 0

    def of(self, workgroup: tuple[int, int, int]) -> np.ndarray[Any, Any]:
        self.asked += 1
        x, y, _ = workgroup
        x = x ^ 1 if self.swapped and y % 2 else x
        return np.array([5000 * self.experts[y] + 7 * x, 900_000 + y])


@pytest.mark.parametrize("swapped", [False, True])
def test_first_lines_that_are_sums(swapped: bool) -> None:
    """The edges of a grid are asked and a few others, unless these are no sums; the answer is that of all."""
    survey: Any = Grouped(swapped)
    sharing = Sharing(survey, (100, 8, 1), XCDS)
    (batch,) = sharing.batches(1024)
    places = [(k % 100, k // 100, 0) for k in range(800)]
    assert (survey.asked < 200) != swapped
    rows = np.array([survey.of(place) for place in places])
    chip = sum(size * len(np.unique(column)) for size, column in zip(survey.bytes, rows.T, strict=True))
    fabric = sum(
        size * len(np.unique(column[k::XCDS]))
        for size, column in zip(survey.bytes, rows.T, strict=True)
        for k in range(XCDS)
    )
    assert (batch.chip_bytes, batch.fabric_bytes) == (chip, fabric)
    assert sharing.unique_bytes() == chip


class Linear:
    """A survey of a grid in one dimension whose kernel makes rows of `width` of it; they may begin anywhere.

    The last rows have nothing to do, and load but one number.
    """

    streams = ((0, 0), (1, 0), (2, 0))
    bytes = np.array([1000.0, 10.0, 1.0])

    def __init__(self, width: int, shifted: bool) -> None:
        self.width, self.asked = width, 0
        self.begin = np.random.default_rng(0).integers(0, width, 240) * shifted

    def of(self, workgroup: tuple[int, int, int]) -> np.ndarray[Any, Any]:
        self.asked += 1
        row, column = divmod(workgroup[0], self.width)
        column = (column + self.begin[row]) % self.width
        if row >= 200:
            return np.array([5000 + 64 * row, -1, -1])
        return np.array([5000 + 64 * row, 900_000 + column // 2, 2_000_000 + 7 * row + 5000 * column])


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("width", [8, 14, 45])
def test_first_lines_that_are_sums_of_digits(width: int, shifted: bool) -> None:
    """Few of a long grid are asked, unless first lines are no sums; the answer is that of all."""
    survey: Any = Linear(width, shifted)
    sharing, total = Sharing(survey, (240 * width, 1, 1), XCDS), 240 * width
    (batch,) = sharing.batches(16384)
    assert (survey.asked < 800) != shifted
    rows = np.array([survey.of((k, 0, 0)) for k in range(total)])
    chip = sum(size * len(np.unique(column[column >= 0])) for size, column in zip(survey.bytes, rows.T, strict=True))
    fabric = sum(
        size * len(np.unique(column[k::XCDS][column[k::XCDS] >= 0]))
        for size, column in zip(survey.bytes, rows.T, strict=True)
        for k in range(XCDS)
    )
    assert (batch.chip_bytes, batch.fabric_bytes) == (chip, fabric)
    assert sharing.unique_bytes() == chip


class Storing:
    """A survey of a kernel that loads nothing."""

    streams = ()
    bytes = np.array([])

    def of(self, workgroup: tuple[int, int, int]) -> np.ndarray[Any, Any]:
        return np.array([])


@pytest.mark.parametrize("grid", [(5, 1, 1), (300, 7, 1)])
def test_nothing_is_loaded(grid: tuple[int, int, int]) -> None:
    """As by a kernel that writes numbers of its own."""
    survey: Any = Storing()
    sharing = Sharing(survey, grid, XCDS)
    assert [(batch.fabric_bytes, batch.chip_bytes) for batch in sharing.batches(4096)] == [(0, 0)]
    assert sharing.unique_bytes() == 0


def test_batches(tmp_path: Path) -> None:
    """The first, those after it, and the rest."""
    kernels = Kernels(checkout.make(tmp_path))
    work = kernels.examine(Gemm(32 * 120, 128 * 100, 512, checkout.TILE_M, checkout.TILE_N))
    capacity = 256 * work.resident
    whole, rest = divmod(12_000, capacity)
    assert whole > 2
    assert [(batch.running, batch.count) for batch in work.batches] == [(capacity, 1), (capacity, whole - 1), (rest, 1)]


def test_cycles_are_extended_in_k(tmp_path: Path) -> None:
    """Two short K stand for any: against a trace of all of it."""
    kernels = Kernels(checkout.make(tmp_path))
    gemm = Gemm(64, 256, 8192, checkout.TILE_M, checkout.TILE_N)
    short, full = kernels.examine(gemm), kernels._launched(gemm)
    assert short.load_bytes == full.load_bytes
    machine = mi355x().machine
    for latency, rate in ((300.0, 30.0), (1400.0, 12.0)):
        cycles = [replayed(work, machine, latency, rate, True).cycles for work in (short, full)]
        assert cycles[0] == pytest.approx(cycles[1], rel=0.01)


def test_more_of_anything_takes_longer(tmp_path: Path) -> None:
    kernels = Kernels(checkout.make(tmp_path))
    sizes = [(32, 1024, 512), (32, 1024, 2048), (32, 16384, 2048), (1024, 16384, 2048), (1024, 16384, 8192)]
    found = [estimate(kernels.examine(Gemm(*size, checkout.TILE_M, checkout.TILE_N))) for size in sizes]
    times = [each.us for each in found]
    assert times == sorted(times)
    assert all(each.low < each.us < each.high for each in found)
    assert found[0].bound in ("launch", "latency")
    assert found[-1].saved["MFMA"] == 0.0


STRIDED = Path(__file__).parents[1] / "kernels" / "strided.ll"


def test_what_binds_is_named() -> None:
    """Launching where that is most of it; lines of the cache where each lane touches its own; else neither."""
    device = Device(memory_bytes=1 << 26)
    (kernel,) = device.load(code_object(STRIDED)).kernels.values()
    data, result = device.alloc(1 << 17), device.alloc(1 << 24)

    def found(workgroups: int, stride: int) -> Estimate:
        examiner, kernarg = Examiner(), struct.pack("<QQI", data.address, result.address, stride)
        device.launch(kernel, (workgroups,), (64,), kernarg, engine=examiner)
        return estimate(examiner.examination)

    spread, close, small = found(8192, 512), found(32768, 4), found(8, 4)
    assert (spread.bound, small.bound) == ("cache lines", "launch")
    assert close.bound not in ("cache lines", "launch")
    assert spread.saved["cache lines"] > spread.us / 3 > close.saved["cache lines"]
    for each in (spread, close, small):
        assert (each.bound == "launch") == (each.saved["launch"] >= each.us / 2)
        assert each.bound == "launch" or each.saved[each.bound] == max({**each.saved, "launch": 0.0}.values())


UNEVEN = STRIDED.with_name("uneven.ll")


def test_workgroups_that_differ_take_their_mean_and_at_the_end_the_longest() -> None:
    """Workgroups loop 1 to 400 times: in one batch the longest counts, in many the mean, and the longest once."""
    device, machine = Device(memory_bytes=1 << 20), mi355x().machine
    (kernel,) = device.load(code_object(UNEVEN)).kernels.values()
    result = device.alloc(64)

    def examined(workgroups: int, period: int) -> Examination:
        examiner = Examiner()
        device.launch(kernel, (workgroups,), (64,), struct.pack("<QIf", result.address, period, 0.5), engine=examiner)
        return examiner.examination

    def steps(work: Examination) -> float:
        return sum(weight * trace.steps for trace, weight in work.parts)

    once = examined(4096, 1)
    assert [weight for _, weight in once.parts] == [1.0]
    each = steps(examined(2, 2)) - steps(once)
    few, many = examined(200, 400), examined(1 << 20, 400)
    assert steps(few) == pytest.approx(steps(once) + 199 * each)
    assert steps(many) == pytest.approx(steps(once) + 199.5 * each, rel=0.3)
    first, last = (replayed(work, machine, 300.0, 30.0, True).cycles for work in (examined(200, 1), few))
    assert last - first == pytest.approx(199 * (replayed(examined(200, 2), machine, 300.0, 30.0, True).cycles - first))
    at_once = many.resident * get_target("gfx950").cus
    assert at_once % 800 < 200
    assert steps(examined(at_once + 10, 800)) < steps(once) + 0.4 * 800 * each  # the last batch is short


def test_endless_kernels_end(tmp_path: Path) -> None:
    """As many instructions as a launch may have."""
    kernels = Kernels(checkout.make(tmp_path))
    device, kernel = kernels._loaded(checkout.TILE_M, checkout.TILE_N)
    with pytest.raises(SimulationError, match="an endless loop"):
        device.launch(
            kernel, (1, 1, 1), (256,), bytes(384), workgroups=[(0, 0, 0)], max_instructions=20, engine=TracingEngine()
        )


def test_dispatches_know_their_grid() -> None:
    """However few workgroups run."""
    seen: list[Dispatch] = []

    class Looking:
        name = "looking"

        def run(self, dispatch: Dispatch) -> dict[Any, Any]:
            seen.append(dispatch)
            return {}

    device = Device(memory_bytes=1 << 26)
    (kernel,) = device.load(code_object(checkout.KERNEL)).kernels.values()
    device.launch(kernel, (3, 2), (256,), bytes(384), workgroups=[(1, 1, 0)], engine=Looking())
    assert seen[0].grid == (3, 2, 1)
