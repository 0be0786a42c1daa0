"""Replays the family's ukernels, and writes what selection wants to know of them: mxcomp/selection/kernel_times.csv.

    python benchmarks/kernel_times.py [--only mx_f4E2M1FN_f4E2M1FN …] [-o FILE]

Every ukernel over units, and every one for experts, is compiled for three K with results of f32, and for one of them
with results of bf16, as only storing them differs. One workgroup of each is traced, and replayed at a few latencies and
rates. Kernels that spill registers are left out, and named.
"""

from __future__ import annotations

import argparse
import csv
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path

from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp import moe
from mxcomp.formats import MX_BLOCK, element_format
from mxcomp.layout import LHS, RHS
from mxcomp.layout.inner_tiles import LANES, MFMA
from mxcomp.measuring import kernels
from mxcomp.options import BENEFIT, ON
from mxcomp.routing import Routing
from mxcomp.selection.times import (
    COLUMNS,
    EXPERTS,
    FILE,
    IN_TILES,
    LATENCIES,
    NARROW,
    RATES,
    TRANSPOSED,
    WIDE,
    with_rows,
)
from mxcomp.sim import code_object
from mxcomp.sim.code_object import Kernel
from mxcomp.sim.counters import occupancy
from mxcomp.sim.device import Device
from mxcomp.sim.program import program_of
from mxcomp.sim.timing.examination import SIMDS, Examination, examine
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.sim.timing.workgroup import replayed
from mxcomp.support import files, workers
from mxcomp.target import DEFAULT, get_target
from mxcomp.ukernels import KINDS, dual_packed, family, gating, once, quantising, swiglu, weight_only
from mxcomp.ukernels.data_tiled import REQUANTISING

TABLE = Path(mxcomp.__file__).parent / "selection" / FILE

_MEMORY, _OPERAND, _BUFFERS = 16 << 30, 1 << 30, 12
_ADDRESS = 8
"""Bytes of one."""
_LONG = (4, 32, 112)
"""K tiles that a loop is kept for, which LLVM unrolls of fewer: its steps take a fifth longer."""
_NARROW_LENGTH = 1
"""Which of its numbers of K tiles a kernel is replayed for with results of 16 bits, too."""
_RESULTS = {WIDE: "f32", NARROW: "bf16"}
_UNVERIFIED = ("--verify=false",)
"""IREE verifies a module after each of its passes, which takes a third of compiling; tests compile the same kernels."""
_TILES = 2
"""Tiles of the result along M and N: neighbours make a grid, without padding."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], metavar="PREFIX", help="ukernels whose names begin so")
    parser.add_argument("-o", type=Path, default=TABLE)
    args = parser.parse_args()
    wanted_names = tuple(args.only)
    kept = _kept(args.o, wanted_names)
    rows: list[dict[str, object]] = []
    with workers.pool() as executor:
        for line, found in executor.map(_timed, wanted(wanted_names)):
            print(line, flush=True)
            rows += found
            # After each, so that an end before the last costs nothing of what is there.
            files.write({args.o: files.table(COLUMNS, [*kept, *rows]).encode()})
    return 0


def _timed(instance: family.Instance) -> tuple[str, list[dict[str, object]]]:
    """The instance's rows, and what there is to say of it."""
    try:
        found = [row for part in parts(instance) for row in replays(instance, *part)]
    except ValueError as error:
        return f"{instance.name}: {error}", []
    return f"{instance.name}: {f'{len(found)} replays' if found else 'spills registers, left out'}", found


def _kept(path: Path, wanted_names: tuple[str, ...]) -> list[dict[str, str]]:
    """The lines of a table that are not made anew."""
    if not path.exists():
        return []
    with path.open() as lines:
        return [row for row in csv.DictReader(lines) if not row["kernel"].startswith(wanted_names)]


def wanted(prefixes: tuple[str, ...]) -> Iterator[family.Instance]:
    """Ukernels over units and for experts, one for all pairs of elements with as many bits: they take the same time.

    Of two packed products the time is that of a plain one.
    """
    seen = set()
    for instance in chain.from_iterable(kind.INSTANCES for kind in KINDS if kind is not dual_packed):
        bits = tuple(element_format(kind).bits for kind in instance.elements)
        own = [getattr(instance, name, None) for name in ("bits", "matrices")]
        key = instance.kernel, instance.tile.pattern, bits, *own
        is_timed = instance.layout.inner_tiles is not None or instance in gating.INSTANCES
        is_timed |= instance.tile == REQUANTISING
        if is_timed and instance.name.startswith(prefixes) and key not in seen:
            seen.add(key)
            yield instance


def parts(instance: family.Instance) -> tuple[tuple[int, str], ...]:
    """What an instance is replayed as: M of the problem, for what one that quantises loads goes with it, and the suffix
    of its name in the table.
    """
    columns = instance.layout.workgroup_tile[1]
    if isinstance(instance, quantising.Instance):
        return tuple((rows, with_rows(rows)) for rows in instance.timed_rows)
    if instance in gating.INSTANCES:
        return ((columns, EXPERTS),)
    if instance.tile == REQUANTISING:
        return tuple(
            (columns, suffix)
            for suffix in IN_TILES
            if suffix != TRANSPOSED or MFMA.holds_blocks(instance.elements[RHS])
        )
    return ((instance.tile.max_m or _TILES * instance.layout.workgroup_tile[0], ""),)


def replays(instance: family.Instance, rows: int, suffix: str) -> Iterator[dict[str, object]]:
    """Rows of the table; none for a kernel that spills."""
    name = instance.name + suffix
    waves = instance.tile.waves.k
    machine = mi355x().machine
    lengths = (1, 4, 12) if waves == 1 else (1, waves, 3 * waves)
    if instance.tile.is_half:
        lengths = (1, *(length + 1 - length % 2 for length in lengths[1:]))  # it takes odd numbers of K tiles
    if suffix in IN_TILES:
        lengths = _LONG
    elif isinstance(instance, once.Instance):
        lengths = _covered(instance, rows, lengths)
    elif isinstance(instance, quantising.Instance) or instance.tile.lhs_row_major:
        lengths = (2, *lengths[1:])  # it takes no single K tile
    cases = [(WIDE, length) for length in lengths]
    if _stores_narrow(instance, suffix):
        cases.append((NARROW, lengths[_NARROW_LENGTH]))
    works = [traced(instance, k_tiles, rows, suffix, size) for size, k_tiles in cases]
    if None in works[: len(lengths)]:
        return
    resident = min(each.resident for each in works if each is not None)
    for (size, k_tiles), work in zip(cases, works, strict=True):
        if work is None:
            continue
        for many, is_first, latency in product(sorted({1, resident}), (True, False), LATENCIES):
            if latency == LATENCIES[-1] and (not is_first or size == NARROW):
                continue
            shared = replace(work, resident=many)
            found = [replayed(shared, machine, latency, rate, is_first) for rate in RATES]
            values = (name, size, many, k_tiles, int(is_first), latency, *(round(each.cycles) for each in found),
                      round(found[0].matrix), work.wide, int(work.load_bytes), int(work.store_bytes))  # fmt: skip
            yield dict(zip(COLUMNS, values, strict=True))


def _stores_narrow(instance: family.Instance, suffix: str) -> bool:
    """Whether a program may store its results in 16 bits, which takes other cycles: of few rows about 20 more."""
    is_quantised = instance.tile in gating.GATED or suffix in IN_TILES
    return not is_quantised and not isinstance(instance, quantising.Instance)


def _covered(instance: once.Instance, rows: int, lengths: Sequence[int]) -> list[int]:
    """K tiles of which LDS has room for the rows: those of `lengths`, and the most."""
    step, columns = instance.layout.workgroup_tile[2], _TILES * instance.layout.workgroup_tile[1]
    most = instance.most * MX_BLOCK // (rows * step)
    most -= instance.tile.is_half and most % 2 == 0
    return sorted({min(each, most) for each in lengths if instance.covers(rows, columns, min(each, most) * step)})


def traced(instance: family.Instance, k_tiles: int, rows: int, suffix: str, size: int = WIDE) -> Examination | None:
    """A workgroup of the kernel, with as many beside it as a CU takes; None for a kernel that spills.

    `size`: of an element of the result, in bytes.
    """
    _, n, step = instance.layout.workgroup_tile
    sizes = rows, _TILES * n, k_tiles * step
    is_for_experts = instance in gating.INSTANCES
    how = {"ukernels": instance.name}
    if is_for_experts:
        how = {"ukernels": BENEFIT}  # which takes that of so many rows
    elif suffix in IN_TILES:
        how = {"fuse_quantisers": ON}
    program = mxcomp.compile(module(instance, *sizes, suffix, _RESULTS[size]), iree_flags=_UNVERIFIED, **how)
    device = Device(memory_bytes=_MEMORY, checks=())
    multiplying = sorted(multiplying_in(program.vmfb, device), key=_number)
    if not multiplying:
        raise AssertionError(f"{instance.name}: no kernel with matrix instructions")
    if any(spills(kernel) or _has(kernel, "scratch_") for kernel in multiplying):
        return None
    is_down = is_for_experts and instance.tile not in gating.GATED
    kernel = multiplying[-1 if is_down or suffix == TRANSPOSED else 0]
    buffers = [device.memory.alloc(_OPERAND, fill=False) for _ in range(_BUFFERS)]
    kernarg = b"".join(struct.pack("<Q", buffer.address) for buffer in buffers)
    size = kernel.descriptor.kernarg_bytes
    if size % _ADDRESS:  # behind the addresses is the number of K tiles, where that is hidden from the compiler
        kernarg = kernarg[: size // _ADDRESS * _ADDRESS] + struct.pack("<I", k_tiles)
    lds, waves = kernel.descriptor.lds_bytes, instance.tile.threads // LANES
    fitting = occupancy(get_target(DEFAULT), kernel.descriptor, lds, waves).waves_per_simd
    work = examine(device, kernel, (1, 1, 1), kernarg, asks=False)  # the number of K tiles is all that decides
    return replace(work, resident=max(1, fitting * SIMDS * LANES // instance.tile.threads))


def multiplying_in(vmfb: bytes, device: Device) -> list[Kernel]:
    """The kernels of a program that have matrix instructions, loaded."""
    codes = [device.load(image) for image in code_object.images(vmfb)]
    return [kernel for code in codes for kernel in code.kernels.values() if _has(kernel, "v_mfma")]


def _has(kernel: Kernel, prefix: str) -> bool:
    return any(i.mnemonic.startswith(prefix) for i in program_of(kernel).instructions.values())


def spills(kernel: Kernel) -> int:
    """The number of registers that it spills."""
    return kernel.metadata.vgpr_spills + kernel.metadata.sgpr_spills


def _number(kernel: Kernel) -> int:
    """Of its dispatch, in the order of the program."""
    found = re.search(r"_dispatch_(\d+)", kernel.name)
    return int(found[1]) if found else 0


def module(instance: family.Instance, m: int, n: int, k: int, suffix: str, result: str = "f32") -> ir.Module:
    """A matmul of two arguments, whose results are stored as `result`."""
    lhs, rhs = (element_format(kind) for kind in instance.elements)
    if isinstance(instance, swiglu.Instance):
        return _hidden(instance, m, n, k, result)
    if isinstance(instance, quantising.Instance):
        return _quantising(instance, m, n, k, result)
    if instance in gating.INSTANCES:
        return _experts(instance, m, k, result)
    if suffix in IN_TILES:
        return _requantised(instance, m, k)
    return kernels.matmul_of_arguments(m, n, k, lhs, rhs, result)


def _quantising(instance: quantising.Instance, m: int, n: int, k: int, result: str) -> ir.Module:
    """The same of activations that are quantised in front of it."""
    lhs, rhs = (element_format(kind) for kind in instance.elements)
    source = next(kind for kind, bits in quantising.SOURCE_BITS.items() if bits == instance.bits)

    def matmul(x: ir.Value, *matrices: ir.Value) -> ir.Value:
        if isinstance(instance, weight_only.Instance):
            return kernels.stored(mx.dequantised_matmul(x, mx.operand(*matrices, rhs)), result)
        a = mx.quantise(x, lhs)
        results = [
            mx.scaled_matmul(a, mx.operand(*each, rhs)) for each in zip(matrices[::2], matrices[1::2], strict=True)
        ]
        return kernels.stored(results[0] if len(results) == 1 else mx.elementwise(mx.multiply, *results), result)

    matrix = (f"{n}x{k * rhs.bits // 8}xi8", f"{n}x{k // MX_BLOCK}xi8")
    return mx.module(matmul, f"{m}x{k}x{source}", *matrix * instance.matrices)


def _requantised(instance: family.Instance, rows: int, k: int) -> ir.Module:
    """A product that is quantised for another."""
    weights, hidden = (element_format(kind) for kind in instance.elements)

    def chain(x: ir.Value, x_scale: ir.Value, *given: ir.Value) -> ir.Value:
        up, down = (mx.operand(*each, weights) for each in zip(given[::2], given[1::2], strict=True))
        result = mx.scaled_matmul(mx.operand(x, x_scale, hidden), up)
        return mx.scaled_matmul(mx.quantise(result, hidden), down)

    def of(height: int, bits: int) -> list[str]:
        return [f"{height}x{size}xi8" for size in (k * bits // 8, k // MX_BLOCK)]

    return mx.module(chain, *of(rows, hidden.bits), *of(k, weights.bits) * 2)


def _hidden(instance: swiglu.Instance, m: int, n: int, k: int, result: str) -> ir.Module:
    """A batch of products of hidden activations."""
    weights = element_format(instance.elements[RHS])

    def down(both: ir.Value, elements: ir.Value, scales: ir.Value) -> ir.Value:
        hidden_rows = mx.elementwise(moe.swiglu, *moe.gate_and_up(both))
        lhs = moe.requantised(hidden_rows, instance.elements[LHS])
        return kernels.stored(mx.scaled_matmul(lhs, mx.operand(elements, scales, weights)), result)

    parts = (f"{_TILES}x{n}x{size}xi8" for size in (k * weights.bits // 8, k // MX_BLOCK))
    return mx.module(down, f"{_TILES}x{m}x{2 * k}xf32", *parts)


def _experts(instance: family.Instance, rows: int, k: int, result: str) -> ir.Module:
    """Gate and up and down of two experts, each with one block of rows: both sum up along K."""
    weights, hidden = instance.elements

    def layer(*given: ir.Value) -> ir.Value:
        x, scales, slots, experts, positions, shares, *matrices = given
        gate_up, down = (
            moe.Experts(mx.operand(*each, weights)) for each in zip(matrices[::2], matrices[1::2], strict=True)
        )
        routing = Routing(slots, experts, positions, shares)
        return moe.gated_layer(mx.operand(x, scales, hidden), gate_up, down, routing, hidden, result=result)

    tokens, bits = _TILES * rows, [element_format(kind).bits for kind in instance.elements]
    tables = (f"{_TILES}x{rows}xi32", f"{_TILES}xi32", f"{tokens}x1xi32", f"{tokens}x1xf32")
    parts = [
        f"{shape}x{size}xi8"
        for shape, each in ((f"{tokens}", bits[1]), (f"{_TILES}x{2 * k}", bits[0]), (f"{_TILES}x{k}", bits[0]))
        for size in (k * each // 8, k // MX_BLOCK)
    ]
    return mx.module(layer, *parts[:2], *tables, *parts[2:])


if __name__ == "__main__":
    sys.exit(main())
