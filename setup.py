"""Builds the HIP driver library of the simulated device along with the package; the rest is in pyproject.toml.

Without a C compiler of its own, the system's build gets one from PyPI (ziglang). Where neither works, mxcomp installs
all the same, and builds the library when it is first needed.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from pathlib import Path
from types import ModuleType

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HIP = Path(__file__).parent / "mxcomp" / "hip"
LIBRARY = HIP / "_lib" / "libamdhip64.so"


def load_build() -> ModuleType:
    """mxcomp.hip.build, while mxcomp itself cannot be imported."""
    spec = importlib.util.spec_from_file_location("mxcomp_hip_build", HIP / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()


def requirements() -> list[str]:
    """A C compiler from PyPI, if there is none here and one for this machine there."""
    try:
        build.compiler()
    except build.BuildError:
        return ["ziglang"] if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64") else []
    return []


def build_library() -> None:
    """In the source tree, where editable installs look for it and wheels take it from."""
    try:
        if not build.is_current(LIBRARY):
            build.build(LIBRARY)
    except (build.BuildError, OSError) as error:
        print(f"warning: mxcomp is installed without its simulated HIP device: {error}", file=sys.stderr)


class BuildWithDriver(build_py):
    def run(self) -> None:
        build_library()
        super().run()


class PlatformWheel(bdist_wheel):
    """The library is for one machine, but for every Python."""

    def finalize_options(self) -> None:
        build_library()  # whether it is there decides the tag
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, tag = super().get_tag()
        return ("py3", "none", build.platform_tag(LIBRARY, tag)) if build.is_current(LIBRARY) else (python, abi, tag)


class WithLibrary(Distribution):
    def has_ext_modules(self) -> bool:
        return build.is_current(LIBRARY)


setup(
    cmdclass={"build_py": BuildWithDriver, "bdist_wheel": PlatformWheel},
    distclass=WithLibrary,
    setup_requires=requirements(),
)
