"""docs/iree.md: what IREE gets wrong, made of the files in passes/workarounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from mxcomp.passes import PASSES, workarounds

FOLDER = Path(__file__).parents[1] / "passes" / "workarounds"
PLACES = {
    "Arguments and results": workarounds.ENTRY,
    "Conversions, constants and slices": workarounds.UNRECOGNISED,
    "What is computed from constants": workarounds.CONSTANT,
    "Scaled matmuls that are left to IREE": workarounds.LEFT_TO_IREE,
    "Elements of less than a byte": workarounds.NARROW,
    "Reductions, sorts, scans, attention, lookups": workarounds.OTHERS,
    "Executables": workarounds.OUTLINED,
    "Dispatches and their buffers": workarounds.DISPATCHES,
}


@dataclass(frozen=True)
class Refuses:
    """IREE does not compile the program; `says` is a regular expression that its diagnostics match."""

    says: str


@dataclass(frozen=True)
class Crashes:
    """IREE ends the process; the backtrace has `says`.

    Where it reads memory that nothing was written to, `fill` is the byte that glibc fills new memory with.
    """

    says: str
    fill: int = 0


@dataclass(frozen=True)
class Computes:
    """The compiled program gives other values than the report expects, or fails with a message that `says` matches."""

    says: str = ""


@dataclass(frozen=True)
class Omits:
    """The program at the end of a phase of IREE does not match a regular expression that it should match."""

    phase: str
    pattern: str


Symptom: TypeAlias = Refuses | Crashes | Computes | Omits


@dataclass(frozen=True)
class Workaround:
    """The fault that a pass works around: the first sentence of its report says it.

    Attributes:
        stock: What a stock IREE makes of the program that shows it.
        upstream: The issue or pull request about it, owner/name#number; "": the report is there to be filed.
        left: What has the fault, and is not worked around.
        versions: The releases of IREE with the fault.
    """

    stock: Symptom
    upstream: str = ""
    left: str = ""
    versions: tuple[str, ...] = ("3.13",)


def workaround(name: str) -> Workaround:
    """Returns what the head of a report says of its fault."""
    text = report(name)
    (found,) = re.finditer(r"^// stock: (?P<kind>\w+)(?: at (?P<phase>\S+))?(?:: (?P<says>.+))?$", text, re.MULTILINE)
    entries = dict(re.findall(r"^// (fill|upstream|left): (.+)$", text, re.MULTILINE))
    fill, says = int(entries.pop("fill", 0)), found["says"] or ""
    match found["kind"]:
        case "refuses":
            return Workaround(Refuses(says), **entries)
        case "crashes":
            return Workaround(Crashes(says, fill), **entries)
        case "computes":
            return Workaround(Computes(says), **entries)
        case "omits":
            return Workaround(Omits(found["phase"], says), **entries)
    raise ValueError(f"{name}: {found[0]}")


def report(name: str) -> str:
    return (FOLDER / f"{workarounds.file(name)}.mlir").read_text()


BEFORE = """# What IREE gets wrong

mxcomp compiles everything but scaled matmuls through IREE 3.13, and its passes work around what that gets wrong. Each
fault is a file in `passes/workarounds/`: `NAME.py` is the pass, and `NAME.mlir` a report, with the commands
that show the fault, which can be filed as it is. The tables follow the order of the passes.

`test/passes/test_workarounds.py` has a stock IREE compile each report. When a test says that a fault is no more, the
pass goes, with its report, its test and its name in `passes/workarounds/__init__.py`. A new release of IREE is a reason
to look at all of them: each says the releases it is for. Issues and pull requests of IREE and LLVM were searched in
November 2026: where nothing stands under "upstream", none was about the fault, and the report is there to be filed.

A new workaround is these three files and the name.
What a model cannot have from a plugin, as a stock iree-compile would get it wrong, `mxcomp/plugin/stock.py` refuses by
the same conditions.
"""
AFTER = """
## Outside of passes

- PyTorch's attention is written otherwise on import, where IREE's kernel for it is wrong: `mxcomp/torch/attention.py`.
- A product of a tensor and itself gets no kernel that bitcasts what it loads twice: `mxcomp/matching/symmetry.py`.
- Operators that IREE's importer rounds otherwise than PyTorch, takes for signed, or does not know are written as
  others on export: `mxcomp/torch/decompositions.py`.
- Operators that IREE's importer refuses are named with their line: `mxcomp/mlir/refusals.py`.
"""


def page() -> str:
    """This file is written by `pytest test/passes/test_workarounds.py --update-docs`."""
    return "\n".join([BEFORE, *_tables(), *_left(), AFTER.strip()]) + "\n"


def _tables() -> Iterator[str]:
    for title, names in PLACES.items():
        known = {name: workaround(name) for name in names}
        yield f"## {title}\n\n| fault | stock IREE | upstream | pass |\n|---|---|---|---|"
        yield "\n".join(_row(name, each) for name, each in known.items()) + "\n"


def _row(name: str, known: Workaround) -> str:
    return f"| {fault(name)} | {_stock(known)} | {_upstream(known)} | {_link(name)} |"


def fault(name: str) -> str:
    """Returns what IREE does: the first sentence of a report."""
    head, _ = report(name).split("\n//\n", maxsplit=1)
    text = " ".join(line.removeprefix("// ") for line in head.splitlines())
    return re.split(r"(?<=\.) ", text, maxsplit=1)[0]


def _stock(known: Workaround) -> str:
    match known.stock:
        case Refuses():
            return "does not compile it"
        case Crashes():
            return "crashes"
        case Computes():
            return "computes other values"
        case Omits(phase, _):
            return f"leaves it out at `{phase}`"


def _upstream(known: Workaround) -> str:
    repository, _, number = known.upstream.partition("#")
    return f"[{known.upstream}](https://github.com/{repository}/issues/{number})" if known.upstream else ""


def _link(name: str) -> str:
    return f"[{name.removeprefix('mxcomp-')}](../passes/{PASSES[name].replace('.', '/')}.py)"


def _left() -> Iterator[str]:
    yield "## Not worked around\n\n| fault | left |\n|---|---|"
    for name in workarounds.ALL:
        known = workaround(name)
        if known.left:
            yield f"| {fault(name)} | {known.left} |"
    yield ""
