"""What a compiled program is made of: its kernels as gfx950 assembly, and the calls of each IREE phase."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assembly import FLAG, KernelAssembly, read_dump
from iree.compiler import ir

import mxcomp
from mxcomp.compiler import Program
from mxcomp.mlir.session import Session

STOCK_FLAGS = ("--iree-hal-target-device=hip", "--iree-rocm-target=gfx950")
ANY_WORK = """
func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
_FUNCTION = re.compile(r"^(?P<name>\w+):[^\n]*\n(?P<text>.*?)^\.Lfunc_end\d+:", re.M | re.S)
_INSTRUCTION = re.compile(r"^\s+([a-z]\w*_\w+)([^\n;]*)", re.M)
_ACCESS = re.compile(r"(global|buffer|flat|scratch)_(load|store)_(\w+)")


@dataclass(frozen=True)
class Kernel:
    """One kernel: counts and metadata, and its assembly text."""

    assembly: KernelAssembly
    text: str

    @property
    def loads(self) -> set[str]:
        """Widths of loads from memory, such as dwordx4 or ubyte."""
        return self._accesses("load")

    @property
    def stores(self) -> set[str]:
        return self._accesses("store")

    @property
    def lds_loads(self) -> int:
        """Loads from memory straight into shared memory."""
        return sum(name.startswith("buffer_load") and "lds" in rest.split() for name, rest in self._instructions)

    @property
    def normal(self) -> str:
        """The instructions without what depends on the function's name or place in the file."""
        lines = (" ".join((name, *rest.split())) for name, rest in self._instructions)
        return re.sub(r"\.LBB\d+_", ".LBB_", "\n".join(lines))

    @property
    def _instructions(self) -> list[tuple[str, str]]:
        return _INSTRUCTION.findall(self.text)

    def _accesses(self, kind: str) -> set[str]:
        found = map(_ACCESS.fullmatch, self.assembly.instructions)
        return {match[3] for match in found if match and match[2] == kind}


def kernels(compile_with: Callable[[str], object]) -> list[Kernel]:
    """Kernels in the order of their dispatches; `compile_with` is to compile with the flag it is given."""
    with TemporaryDirectory() as directory:
        compile_with(f"{FLAG}={directory}")
        text = "".join(path.read_text() for path in sorted(Path(directory).glob("*.rocmasm")))
        found = read_dump(directory)
    assert found, "IREE dumped no assembly"
    texts = {match["name"]: match["text"] for match in _FUNCTION.finditer(text)}
    return [Kernel(assembly, texts[assembly.name]) for assembly in found]


def compiled(source: str, **options: Any) -> tuple[Program, list[Kernel]]:
    """The program that mxcomp makes, and its kernels."""
    made = compiled_in_phases(source, **options)
    return made.program, made.kernels


@dataclass(frozen=True)
class InPhases:
    """A program, its kernels, and the module at the end of each phase, which one compilation shows."""

    program: Program
    kernels: list[Kernel]
    phases: dict[str, bytes]

    def calls(self, phase: str) -> Counter[str]:
        """How often each operation occurs outside executables at the end of a phase."""
        return host_operations(self.phases[phase])


def compiled_in_phases(source: str, **options: Any) -> InPhases:
    programs: list[Program] = []
    with TemporaryDirectory() as directory:
        dump = f"--dump-compilation-phases-to={directory}"
        found = kernels(lambda flag: programs.append(mxcomp.compile(source, iree_flags=[flag, dump], **options)))
        phases = {path.name.split(".")[-2]: path.read_bytes() for path in Path(directory).iterdir()}
    return InPhases(programs[0], found, phases)


def stock(source: str, *flags: str, to: str = "end") -> Session:
    """`source` compiled by IREE alone."""
    session = Session((*STOCK_FLAGS, *flags))
    session.load(source.encode(), "source")
    session.run("start", to)
    return session


def executable_target(*flags: str) -> str:
    """The `#hal.executable.target` that IREE makes for gfx950."""
    for op in stock(ANY_WORK, *flags, to="flow").module.regions[0].blocks[0].operations:
        if op.operation.name == "util.global":
            device = str(op.attributes["initial_value"])
            return device[device.index("[") + 1 : device.rindex("]")]
    raise AssertionError("IREE made no device")


def calls(source: str, phase: str, **options: Any) -> Counter[str]:
    """How often each operation occurs outside executables at the end of an IREE phase."""
    return host_operations(mxcomp.compile(source, compile_to=phase, **options).vmfb)


def host_operations(text: bytes) -> Counter[str]:
    found: Counter[str] = Counter()

    def visit(op: ir.Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                for view in block.operations:
                    found[view.operation.name] += 1
                    if not view.operation.name.endswith(".executable"):
                        visit(view.operation)

    with ir.Context():
        module = ir.Module.parse(text)
        visit(module.operation)
    return found
