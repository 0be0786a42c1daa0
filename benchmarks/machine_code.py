"""Compiles ukernels, and writes what became of each into a table; says which are no longer what a table has.

    python benchmarks/machine_code.py [--only mx_f4E2M1FN_f4E2M1FN_f32_m256 …] [-o FILE] [--dump DIR]
    python benchmarks/machine_code.py --against FILE [--only …] [--dump DIR]

So one sees whether a ukernel that was written anew is the same to the hardware: make a table of the old tree, and
compare the new one with it. One instance stands for all of its tile whose elements have as many bits, as in
benchmarks/kernel_times.py. `--dump` keeps the instructions of each, to be compared by eye.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernel_times import module, multiplying_in, parts, spills, wanted

import mxcomp
from mxcomp.sim.device import Device
from mxcomp.support import files
from mxcomp.ukernels import family

COLUMNS = ("kernel", "vgprs", "sgprs", "lds", "spills", "instructions", "digest")
_K_TILES = 4
_DUMP = "--iree-hal-dump-executable-intermediates-to"
_CODE = re.compile(r"(v|s|ds|buffer|global|flat|scratch)_|\.LBB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], metavar="PREFIX", help="ukernels whose names begin so")
    parser.add_argument("--file", help="ukernels that are made from this one: intrawave.py, gating.py, …")
    parser.add_argument("-o", type=Path, help="table to write")
    parser.add_argument("--against", type=Path, help="table to compare with")
    parser.add_argument("--dump", type=Path, help="folder for the instructions of each")
    args = parser.parse_args()
    before = {row["kernel"]: row for row in _table(args.against)} if args.against else {}
    rows: list[dict[str, str]] = []
    changed = 0
    for instance in wanted(tuple(args.only)):
        if args.file not in (None, instance.path.name):
            continue
        row = compiled(instance, args.dump)
        rows.append(row)
        differences = _differences(before.get(row["kernel"], {}), row) if args.against else []
        changed += bool(differences)
        print(row["kernel"], *(differences or (row["vgprs"], "VGPRs", row["spills"], "spills")), flush=True)
        if args.o:
            files.write({args.o: files.table(COLUMNS, rows).encode()})
    return int(changed > 0)


def compiled(instance: family.Instance, dump: Path | None) -> dict[str, str]:
    """The row of an instance, whose matmul is compiled alone."""
    rows, suffix = parts(instance)[0]
    _, n, step = instance.layout.workgroup_tile
    with tempfile.TemporaryDirectory() as directory:
        program = mxcomp.compile(
            module(instance, rows, 2 * n, _K_TILES * step, suffix),
            iree_flags=(f"{_DUMP}={directory}",),
            ukernels=instance.name,
            strict=True,
        )
        text = "\n".join(path.read_text() for path in sorted(Path(directory).glob("*.rocmasm")))
    (kernel,) = multiplying_in(program.vmfb, Device(checks=()))
    lines = list(instructions(text, kernel.name))
    if dump:
        dump.mkdir(parents=True, exist_ok=True)
        (dump / f"{instance.name}.s").write_text("\n".join(lines))
    taken, lds = kernel.metadata, kernel.descriptor.lds_bytes
    numbers = taken.vgprs, taken.sgprs, lds, spills(kernel), len(lines)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return dict(zip(COLUMNS, (instance.name, *map(str, numbers), digest), strict=True))


def instructions(text: str, kernel: str) -> Iterator[str]:
    """Those of a kernel in an assembly file, with operands and labels, without comments."""
    for line in text.partition(f"\n{kernel}:")[2].partition("\n.Lfunc_end")[0].splitlines():
        code = line.partition(";")[0].strip()
        if _CODE.match(code):
            yield " ".join(code.split())


def _table(path: Path) -> list[dict[str, str]]:
    with path.open() as lines:
        return list(csv.DictReader(lines))


def _differences(before: dict[str, str], row: dict[str, str]) -> list[str]:
    """What has changed of an instance; that it is new, if it is."""
    if not before:
        return ["is not in the table"]
    return [f"{name} {before[name]} → {row[name]}" for name in COLUMNS if before[name] != row[name]]


if __name__ == "__main__":
    sys.exit(main())
