"""Broken code objects and programs end in an error: never a crash, a hang, or memory of the caller touched.

The driver library runs with AddressSanitizer and UndefinedBehaviorSanitizer in these programs.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import iree._runtime_libs
import pytest
from host_programs import module_path
from load_mutants import CODES
from mutants import elf_bytes, mutated, mutated_around
from sanitized import Sanitized, sanitized
from spread import every
from stock import ELEMENTWISE, compiled

from mxcomp.hip import loading
from mxcomp.hip.protocol import MOST_KERNARG_BYTES
from mxcomp.sim import CodeObjectError

HERE = Path(__file__).parent
RUN_MODULE = Path(iree._runtime_libs.__path__[0]) / "iree-run-module"
SANITIZER_EXIT = 99
INPUTS = ["--input=37x129xf32=1", "--input=129xf32=2"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    return sanitized(tmp_path_factory.mktemp("sanitized"))


def test_sanitizers_see_the_library(library: Sanitized) -> None:
    """A stream that was destroyed is used: the tests below would miss such things if nothing were instrumented."""
    script = """
import ctypes, os
from hip_api import LibraryFunctions
hip = LibraryFunctions(os.environ["LIBRARY"])
stream = hip.new("hipStreamCreateWithFlags", 0)
hip.hipStreamDestroy(stream)
hip.functions.hipModuleLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, ctypes.c_void_p(stream), None, None)
"""
    done = python(library, "-c", script)
    (report,) = library.reports()
    assert done.returncode == SANITIZER_EXIT
    assert "heap-use-after-free" in report
    assert library.of_library([report])


@pytest.mark.parametrize("seed", every(2, range(0, 500, 25)))
def test_arguments_of_what_is_read(seed: int) -> None:
    """Of 25 mutants: they lie in the segment, or there is an error that says why."""
    for each in range(seed, seed + 25):
        try:
            module = loading.read(mutated(CODES[each % len(CODES)], each))
        except CodeObjectError as error:
            assert str(error)
            continue
        for kernel in module.kernels.values():
            end = max((argument.offset + argument.size for argument in kernel.arguments), default=0)
            assert min((argument.offset for argument in kernel.arguments), default=0) >= 0
            assert end <= kernel.argument_bytes <= MOST_KERNARG_BYTES


def test_some_code_objects(library: Sanitized) -> None:
    load_and_launch(library, 0, 500, 125)


def test_some_programs(library: Sanitized, tmp_path: Path) -> None:
    run_programs(library, tmp_path, (0, 255))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 500, 100))
def test_code_objects(library: Sanitized, first: int) -> None:
    load_and_launch(library, first, first + 100, 1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 500, 50))
def test_programs(library: Sanitized, tmp_path: Path, first: int) -> None:
    run_programs(library, tmp_path, range(first, first + 50))


def python(library: Sanitized, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = library.variables(LIBRARY=str(library.library), PYTHONPATH=module_path())
    return subprocess.run([sys.executable, *arguments], env=variables, capture_output=True, text=True, timeout=3600)


def load_and_launch(library: Sanitized, *seeds: int) -> None:
    """Mutated code objects, one after the other in one process."""
    done = python(library, str(HERE / "load_mutants.py"), *map(str, seeds))
    lines = [line.split() for line in done.stdout.splitlines()]
    print(Counter(outcome for _, *outcomes in lines for outcome in outcomes))
    assert library.reports() == []
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert [int(seed) for seed, *_ in lines] == list(range(*seeds))
    assert "Traceback" not in done.stderr
    assert not any("died" in line for line in lines)


def run_programs(library: Sanitized, folder: Path, seeds: Iterable[int]) -> None:
    """A mutated program each in a process of IREE's; half of them in the code object, half of them elsewhere.

    IREE may crash by itself on programs that are no longer valid: what is ours has our library on a stack.
    """
    vmfb = compiled(ELEMENTWISE)
    start = vmfb.index(b"\x7fELF\2\1")
    end = start + elf_bytes(vmfb[start:])
    flags = [f"--hip_dylib_path={library.folder}", "--device=hip", "--function=main", *INPUTS]
    ends, ours, theirs, tracebacks = Counter[str](), [], [], []

    def run(program: bytes) -> subprocess.CompletedProcess[bytes]:
        (folder / "mutant.vmfb").write_bytes(program)
        command, variables = [RUN_MODULE, f"--module={folder / 'mutant.vmfb'}", *flags], library.variables()
        return subprocess.run(command, env=variables, capture_output=True, timeout=120)

    assert run(vmfb).returncode == 0
    for seed in seeds:
        code = mutated(vmfb[start:end], seed // 2)
        done = run(mutated_around(vmfb, start, end, seed) if seed % 2 else vmfb[:start] + code + vmfb[end:])
        ends[f"exit {done.returncode}" + (" where code is mutated" if seed % 2 == 0 else "")] += 1
        reports = library.reports()
        mine = library.of_library(reports)
        ours += [(seed, report) for report in mine]
        theirs += [(seed, report) for report in reports if report not in mine]
        tracebacks += [(seed, done.stderr)] if b"Traceback" in done.stderr else []
    print(ends, *(f"{seed}: {report[:3000]}" for seed, report in theirs), sep="\n")
    assert ours == []
    assert tracebacks == []
