"""mxcomp-kernel: lists ukernels, or prints one as a .mlir file to start from.

mxcomp-kernel                                          all of them
mxcomp-kernel 'mx_*_m256_*' --types=f4E2M1FN --measure some, compiled for their registers
mxcomp-kernel mx_f4E2M1FN_f4E2M1FN_f32_m256_n256_k512 --as=mine -o my_ukernels/mine.mlir
mxcomp-compile model.mlir -o model.vmfb --ukernel-dir=my_ukernels

A name prints; a pattern, or `list` before it, lists. Cycles and the part of MFMA are modelled, of a loop that gets 28
bytes a cycle from memory. Registers are those of a kernel that was compiled, and are kept.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from operator import itemgetter
from typing import Any

from iree.compiler import ir

from mxcomp.errors import InputError
from mxcomp.formats import ELEMENT_TYPES
from mxcomp.layout import OPERAND_NAMES
from mxcomp.measuring import kernels
from mxcomp.measuring.subject import RESULT_BYTES
from mxcomp.registry import Constraint, Registry, Ukernel
from mxcomp.selection import times
from mxcomp.support import files, tables
from mxcomp.support.progress import waiting
from mxcomp.support.tables import Column
from mxcomp.target import DEFAULT, get_target
from mxcomp.tools import common
from mxcomp.ukernels import family, gating

NAME = "mxcomp-kernel"
_LIST, _PRINT = "list", "print"
_PATTERN = re.compile(r"[*?\[]")
_OWN_BENEFIT = 100
"""The benefit of a printed ukernel: above those of all files of this package."""


def _number(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: "" if row[key] is None else str(row[key])


_COLUMNS = (
    Column("name", text=itemgetter("name")),
    Column("tile", text=lambda row: "×".join(map(str, row["tile"]))),
    Column("LHS", text=lambda row: row["types"][0]),
    Column("RHS", text=lambda row: row["types"][1]),
    Column("VGPRs", right=True, text=_number("vgprs")),
    Column("LDS", right=True, text=_number("lds_bytes")),
    Column("spills", right=True, text=_number("spills")),
    Column("cycles", right=True, text=_number("cycles_per_k_tile")),
    Column("MFMA", right=True, text=lambda row: "" if row["mfma_share"] is None else f"{row['mfma_share']:.0%}"),
    Column("chosen", fold=20, text=itemgetter("chosen")),
)
_CAPTION = "cycles of a K tile, and the part of them that MFMA take: modelled"


def main(argv: list[str] | None = None) -> int:
    parser = common.described_parser(NAME, __doc__)
    parser.add_argument("words", nargs="*", metavar="NAME", help="[print] NAME, or [list] PATTERN …")
    parser.add_argument("--types", metavar="LHS[,RHS]", help="element types to list, or patterns of them")
    parser.add_argument("--json", action="store_true", help="list as JSON")
    parser.add_argument("--measure", action="store_true", help="compile what is listed: its registers and LDS")
    parser.add_argument("--as", dest="name", metavar="NAME", help="print under another name, to be chosen by it")
    parser.add_argument(
        "--result", choices=RESULT_BYTES, default="f32", help="print it for results stored so (default: %(default)s)"
    )
    parser.add_argument("-o", dest="output", default="-", metavar="FILE", help="- for stdout (default)")
    parser.add_argument("--target", default=DEFAULT, help="the GPU (default: %(default)s)")
    parser.add_argument("--ukernel-dir", action="append", default=[], metavar="DIR", help="more ukernels; repeatable")
    args = parser.parse_args(argv)

    def run() -> None:
        files.check_writable(args.output)
        with ir.Context(), ir.Location.unknown():
            registry = Registry(get_target(args.target), args.ukernel_dir)
            match args.words:
                case [word] if word != _LIST and not _PATTERN.search(word):
                    _print(registry[word], registry, args)
                case [command, name] if command == _PRINT:
                    _print(registry[name], registry, args)
                case [command, *patterns] if command == _LIST:
                    _list(registry, patterns, args)
                case patterns:
                    _list(registry, patterns, args)

    return common.exit_code(NAME, run)


# A list


def _list(registry: Registry, patterns: Sequence[str], args: argparse.Namespace) -> None:
    if args.name is not None:
        raise InputError(f"--as={args.name} is for one kernel: give its name")
    found = list(_found(registry, patterns, args.types))
    rows = []
    for number, ukernel in enumerate(found):
        with waiting(f"compiling {ukernel.name} ({number + 1} of {len(found)})" if args.measure else ""):
            rows.append(_entries(ukernel, registry, args.measure, args.ukernel_dir))
    if args.json:
        files.write({args.output: json.dumps(rows, indent=2).encode() + b"\n"})
        return
    if args.output != "-":
        raise InputError(f"-o {args.output}: a table is for people: expected --json")
    tables.show(sys.stdout, _COLUMNS, tables.rows(_COLUMNS, rows), caption=_CAPTION)


def _found(registry: Registry, patterns: Sequence[str], types: str | None) -> Iterator[Ukernel]:
    """Returns the ukernels that are asked for. Raises InputError if there are none."""
    wanted = [] if types is None else types.split(",")
    if len(wanted) > 2:
        raise InputError(f"--types={types}: expected one for LHS, and perhaps one for RHS behind a comma")
    for kind in wanted:
        if not any(fnmatchcase(known, kind) for known in ELEMENT_TYPES):
            raise InputError(f"--types={types}: no type is {kind}: expected one of {', '.join(ELEMENT_TYPES)}")
    nothing = True
    for ukernel in registry.ukernels.values():
        named = not patterns or any(fnmatchcase(ukernel.name, pattern) for pattern in patterns)
        if named and all(fnmatchcase(kind, like) for kind, like in zip(ukernel.types, wanted, strict=False)):
            nothing = False
            yield ukernel
    if nothing:
        asked = " ".join([*patterns, *([f"--types={types}"] if types else [])])
        meant = registry.nearest(patterns[0]) if patterns else ""
        raise InputError(f"no kernel is {asked}: {meant}{NAME} lists all")


def _entries(ukernel: Ukernel, registry: Registry, measure: bool, directories: Sequence[str]) -> dict[str, Any]:
    """Returns the properties of a ukernel to print."""
    known = times.of(ukernel)
    loop = None if known is None else kernels.loop(known)
    taken = kernels.registers(ukernel, directories) if measure else None
    return {
        "name": ukernel.name,
        "file": ukernel.path.name,
        "tile": list(ukernel.tile),
        "types": list(ukernel.types),
        "operands": ukernel.operands,
        "workgroup_size": list(ukernel.workgroup_size),
        "vgprs": taken and taken.vgprs,
        "sgprs": taken and taken.sgprs,
        "lds_bytes": taken and taken.lds_bytes,
        "spills": taken and taken.spills,
        "cycles_per_k_tile": loop and round(loop.cycles),
        "mfma_share": loop and round(loop.mfma, 3),
        "benefit": ukernel.benefit,
        "chosen": _chosen(ukernel, registry),
    }


# When it is chosen

_OPERANDS = {
    "row_major": "row-major operands",
    "lhs_row_major": "LHS read as it is stored",
    "rhs_row_major": "RHS read as it is stored",
    "quantising": "activations quantised in the kernel",
    "quantising_pair": "activations quantised in the kernel, two matrices",
    "hidden": "hidden activations of experts",
}
_EXPERTS = "a layer of experts, by their rows"


def _chosen(ukernel: Ukernel, registry: Registry) -> str:
    """Returns the match rule, in words."""
    words = [_OPERANDS.get(ukernel.operands, ukernel.operands)] if ukernel.operands != "data_tiled" else []
    words += [each for axis, bounds in ukernel.constraints.items() for each in _bounds(axis.upper(), bounds)]
    if ukernel.instance in gating.INSTANCES:
        return "; ".join([*words, _EXPERTS])
    if registry.is_foreign(ukernel):
        return "; ".join([*words, f"before all of lower benefit than {ukernel.benefit}"])
    if times.of(ukernel) is not None or ukernel.operands not in kernels.UNFUSED:
        return "; ".join([*words, "where modelled fastest"])
    return "; ".join([*words, f"by name, or --ukernels=benefit (its own is {ukernel.benefit})"])


def _bounds(axis: str, bounds: Constraint) -> Iterator[str]:
    if bounds.min is not None and bounds.max is not None:
        yield f"{axis} = {bounds.min}" if bounds.min == bounds.max else f"{axis} from {bounds.min} to {bounds.max}"
    elif bounds.min is not None:
        yield f"{axis} ≥ {bounds.min}"
    elif bounds.max is not None:
        yield f"{axis} ≤ {bounds.max}"
    if bounds.div is not None:
        yield f"{axis} a multiple of {bounds.div}"
    if bounds.odd is not None:
        yield f"{axis} padded to an odd number of {bounds.odd}"


# One as a file


def _print(ukernel: Ukernel, registry: Registry, args: argparse.Namespace) -> None:
    name = args.name or ukernel.name
    if args.json or args.types or args.measure:
        raise InputError("--json, --types and --measure are for lists: give a pattern, or `list` before the name")
    if name != ukernel.name and name in registry.ukernels:
        raise InputError(f"--as={name}: that kernel exists already")
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise InputError(f"--as={name}: expected letters, digits and underscores")
    with waiting(f"compiling {ukernel.name}"):
        entries = _entries(ukernel, registry, True, args.ukernel_dir)
    is_file = ukernel.instance is None and ukernel.source is None
    text = ukernel.path.read_text() if is_file else ukernel.text(family.Stores(RESULT_BYTES[args.result]))
    if args.name is not None:
        if ukernel.operands not in kernels.UNFUSED:
            raise InputError(f"--as={name}: {ukernel.name} takes {ukernel.operands} operands, as no file can")
        text = re.sub(rf"@{ukernel.name}\b", f"@{name}", text)
        text = re.sub(r"\bbenefit = -?\d+", f"benefit = {_OWN_BENEFIT}", text, count=1)
    header = "".join(f"//{' ' * bool(line)}{line}\n" for line in _header(ukernel, name, entries))
    files.write({args.output: f"{header}\n{text.rstrip()}\n".encode()})


def _header(ukernel: Ukernel, name: str, entries: dict[str, Any]) -> Iterator[str]:
    lhs, rhs, *_, result = ukernel.types
    m, n, k = ukernel.tile
    threads = entries["workgroup_size"][0]
    yield f"{name}: {lhs} × {rhs} → {result}, in tiles of {m}×{n}, {k} along K at a time."
    if name != ukernel.name:
        yield f"Printed by {NAME} from {ukernel.name}, with another name and benefit."
    yield ""
    yield f"Workgroup: {threads} threads in {threads // 64} wave{'s' * (threads > 64)}."
    yield f"Chosen: {entries['chosen']}."
    if entries["vgprs"] is not None:
        spilled = f"{entries['spills']} spilled" if entries["spills"] else "none spilled"
        registers = f"{entries['vgprs']} VGPRs, {entries['sgprs']} SGPRs, {spilled}"
        yield f"Registers: {registers}; {entries['lds_bytes']} bytes of LDS."
    if entries["cycles_per_k_tile"] is not None:
        loop = f"{entries['cycles_per_k_tile']} cycles a K tile, {entries['mfma_share']:.0%} of them MFMA"
        yield f"Modelled: {loop}, at {kernels.LOOP_RATE:g} bytes a cycle from memory."
    yield ""
    yield "Arguments; the layout in the rule says which element lies where (ukernels/README.md), ? are K tiles:"
    arguments = ukernel.arguments()
    names = OPERAND_NAMES if len(arguments) == len(OPERAND_NAMES) else [f"argument {i}" for i in range(len(arguments))]
    yield from (f"    {each}: {kind}" for each, kind in zip(names, arguments, strict=True))
    yield ""
    if ukernel.operands in kernels.UNFUSED:
        yield "In a directory DIR, under a name of its own and with a benefit above others, it is taken by"
        yield "    mxcomp-compile model.mlir -o model.vmfb --ukernel-dir=DIR"
    else:
        yield f"It takes {ukernel.operands} operands, which the compiler puts together: no file for --ukernel-dir."


if __name__ == "__main__":
    sys.exit(main())
