"""Waits and barriers are taken out of two kernels, one at a time: what can change a result is reported.

Both kernels are kept code objects, so offsets stay: Triton's MXFP4 matmul with three pipeline stages, and the matmul
of mxcomp's ukernel m64_n128_k512. Both load straight into LDS. Unmodified they are free of findings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus.device import SCHEDULES, Machine
from corpus.iree.program import Program
from corpus.mutation import Site, sites
from corpus.operands import operand
from corpus.triton import KERNELS

from mxcomp.sim import SimulationError

Run = Callable[[bytes, str], np.ndarray]

TRITON = KERNELS["scaled_e2m1_e2m1_mfma16_stages3"]
UKERNEL = Program.load(Path(__file__).parent / "corpus" / "iree" / "m64_n128_k512.json")

TRITON_UNDETECTED = {
    0x8: "in the entry for hardware without kernarg preload, which is not executed",
    0x1898: "tiles go round three buffers: those read in this iteration are written in the next one, which begins "
    "after the barrier at 0x19f8",
    0x19F4: "scales written before the barrier at 0x19f8 are read two tiles later: the next tile's wait at 0x16ac (or "
    "0x1d04 after the loop) comes first, and so does the barrier that follows it (0x1898 or 0x1eec)",
}
UKERNEL_UNDETECTED = {
    0x10: "in the entry for hardware without kernarg preload, which is not executed",
    0xDC8: "waits for tiles loaded in advance past the end of K, which nothing reads; s_endpgm waits by itself",
    0xEE4: "the last instruction before s_endpgm: no access to LDS follows",
}


@cache
def triton_runs() -> tuple[Run, ...]:
    """Five tiles of K, more than there are buffers, and two, for which the loop is left out."""
    return tuple(_triton_run(tiles) for tiles in (5, 2))


def _triton_run(tiles: int) -> Run:
    m, n, k = 128, 128, tiles * TRITON.constants["block_k"]
    rng = np.random.default_rng(11)
    a, b = operand(rng, "e2m1", m, k), operand(rng, "e2m1", n, k)
    inputs = {"a": a.packed, "b": b.packed, "a_scale": a.scales, "b_scale": b.scales}

    def run(code: bytes, schedule: str) -> np.ndarray:
        machine, like = Machine("numpy", schedule), {"c": np.empty((m, n), np.float32)}
        return TRITON.run(machine, inputs, like, {"m": m, "n": n, "k": k}, code)[0]

    return run


@cache
def ukernel_runs() -> tuple[Run, ...]:
    """Four tiles of K in three buffers, packed once by the unmodified program."""
    m, n, k = 64, 128, 2048
    rng = np.random.default_rng(11)
    a, b = operand(rng, "e2m1", m, k), operand(rng, "e2m1", n, k)
    machine = Machine("numpy")
    buffers = [machine.upload(array) for array in (a.packed, b.packed, a.scales, b.scales)]
    buffers += [machine.allocate(size) for size in UKERNEL.buffers[4:]]
    machine.launch(UKERNEL.code, UKERNEL.launches([buffer.address for buffer in buffers])[:-1])
    packed = machine.read(buffers[-1], np.empty(UKERNEL.buffers[-1], np.uint8))

    def run(code: bytes, schedule: str) -> np.ndarray:
        machine = Machine("numpy", schedule)
        result, transient = machine.allocate(4 * m * n), machine.upload(packed)
        machine.launch([code], UKERNEL.launches([0, 0, 0, 0, result.address, transient.address])[-1:])
        return machine.read(result, np.empty((m, n), np.float32))

    return (run,)


KERNELS_UNDER_TEST = {
    "triton": (TRITON.code, TRITON.kernel, triton_runs, TRITON_UNDETECTED),
    "ukernel": (UKERNEL.code[0], UKERNEL.dispatches[-1].kernel, ukernel_runs, UKERNEL_UNDETECTED),
}


def mutants(detected: bool) -> list[Any]:
    """Parameters for the sites that are, or are not, expected to be missed; is_quick() says which run by default."""
    chosen = [
        (name, site)
        for name, (code, kernel, _, undetected) in KERNELS_UNDER_TEST.items()
        for site in sites(code, kernel)
        if (site.offset not in undetected) is detected
    ]
    return [
        pytest.param(
            name,
            site,
            id=f"{name}-{site.offset:#x}-{site.text.replace(' ', '-')}",
            marks=[] if is_quick(index, name, site) else pytest.mark.slow,
        )
        for index, (name, site) in enumerate(chosen)
    ]


def is_quick(index: int, name: str, site: Site) -> bool:
    """Barriers and a tenth of the waits; of sites that are expected to be missed, those that are executed."""
    reason = KERNELS_UNDER_TEST[name][3].get(site.offset)
    if reason is not None:
        return "not executed" not in reason
    return site.text == "s_barrier" or index % 10 == 0


@pytest.mark.parametrize(("name", "site"), mutants(detected=True))
def test_removal_is_reported(name: str, site: Site) -> None:
    """For one of the problem sizes."""
    code, _, runs, _ = KERNELS_UNDER_TEST[name]
    findings: list[Any] = []
    for run in runs():
        try:
            run(site.removed(code), "forward")
        except SimulationError as error:
            findings += error.findings
            break
    assert {finding.check for finding in findings} & {"late", "race"}


@pytest.mark.parametrize(("name", "site"), mutants(detected=False))
def test_removal_that_cannot_change_a_result(name: str, site: Site) -> None:
    """Nothing is reported, and the result keeps its bits in every schedule."""
    code, _, runs, _ = KERNELS_UNDER_TEST[name]
    for run, expected in zip(runs(), unmodified(name), strict=True):
        for schedule in SCHEDULES:
            np.testing.assert_array_equal(run(site.removed(code), schedule), expected)


@cache
def unmodified(name: str) -> tuple[np.ndarray, ...]:
    """Results of the kernel as it is, for each of the problem sizes."""
    code, _, runs, _ = KERNELS_UNDER_TEST[name]
    return tuple(run(code, "forward") for run in runs())


@pytest.mark.parametrize("name", KERNELS_UNDER_TEST)
def test_explained_sites_exist(name: str) -> None:
    code, kernel, _, undetected = KERNELS_UNDER_TEST[name]
    assert set(undetected) < {site.offset for site in sites(code, kernel)}
