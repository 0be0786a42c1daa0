"""The driver library with AddressSanitizer and UndefinedBehaviorSanitizer, in programs that know nothing of them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from mxcomp.hip import build

_FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g")
_WORKER = """#!/bin/sh
unset LD_PRELOAD
exec "{python}" "$@"
"""
"""Starts the worker without the sanitizers: what it runs is Python."""


@dataclass(frozen=True)
class Sanitized:
    """A library in `folder`, and `runtime`, what is to be loaded before it."""

    folder: Path
    runtime: str

    @property
    def library(self) -> Path:
        return self.folder / build.NAME

    def variables(self, **settings: str) -> dict[str, str]:
        """For a process whose findings `reports` gives."""
        options = f"detect_leaks=0:allocator_may_return_null=1:exitcode=99:log_path={self.folder}/report"
        return os.environ | {
            "LD_PRELOAD": self.runtime,
            "ASAN_OPTIONS": options,
            "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={self.folder}/report",
            "PYTHONMALLOC": "malloc",
            "MXCOMP_PYTHON": str(self.folder / "worker.sh"),
            "MXCOMP_SIM_ENGINE": "numpy",
            "MXCOMP_SIM_MAX_INSTRUCTIONS": "2000",
            **settings,
        }

    def reports(self) -> list[str]:
        """What the sanitizers have found since this was last asked."""
        found = []
        for path in self.folder.glob("report.*"):
            found.append(path.read_text(errors="replace"))
            path.unlink()
        return found

    def of_library(self, reports: list[str]) -> list[str]:
        """Those with code of the library on a stack, which is named by source file or by library."""
        return [report for report in reports if build.NAME in report or f"{build.SOURCES}/" in report]


def sanitized(folder: Path) -> Sanitized:
    """Skips the test where the compiler cannot make one."""
    try:
        compiler = build.compiler()
        build.build(folder / build.NAME, _FLAGS)
    except build.BuildError as error:
        pytest.skip(f"no C compiler with sanitizers: {error}")
    found = subprocess.run([*compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not Path(found).is_absolute():
        pytest.skip(f"{' '.join(compiler)} has no libasan.so that programs can load before others")
    worker = folder / "worker.sh"
    worker.write_text(_WORKER.format(python=sys.executable))
    worker.chmod(0o755)
    return Sanitized(folder, str(Path(found).resolve()))
