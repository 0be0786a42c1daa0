"""Lets pytest collect lit tests: .mlir files here, and files with RUN lines in the folders listed by folders.lit."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import lit.discovery
import lit.LitConfig
import lit.Test
import lit.TestingConfig
import lit.worker
import pytest
from _pytest._code.code import TerminalRepr
from hypothesis.internal.conjecture import providers

from mxcomp.mlir.driver import DriverFlags
from mxcomp.options import STRICT

TESTS = Path(__file__).parent
ROOT = TESTS.parent

# A pass that fails is to be seen here, and not what is compiled in its place.
os.environ.setdefault(STRICT, "1")

# There is a process for each core: further threads of NumPy's and PyTorch's products wait, and take its time for that.
for library in ("OMP", "OPENBLAS"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# Hundreds of processes begin here: each would compile what it imports, where bytecode is not to be kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What takes how long says nothing of the code on a machine that does other things besides.
hypothesis.settings.register_profile("mxcomp", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("mxcomp")


def pytest_configure(config: pytest.Config) -> None:
    """IREE verifies IR behind each of its passes, for a quarter of its time: in commands, and where slow tests run too.

    Elsewhere it is verified behind each of ours (`pipeline.run`), and so behind IREE's phases. Nor does Hypothesis
    parse all modules there, for constants that it might draw.
    """
    if config.option.markexpr == "not slow":
        providers._get_local_constants = lambda: providers._local_constants
        flags_of = DriverFlags.of
        quick = ("--verify=false",)
        DriverFlags.of = staticmethod(  # type: ignore[method-assign]
            lambda flags: flags_of(flags if "--verify" in flags else (*quick, *flags))
        )


COMPILED = (
    "hip/", "registry/", "sim/", "ukernels/", "plans/test_parts_of_k.py", "plans/test_versions.py",
    "moe/test_routed_experts.py",
)  # fmt: skip
"""What runs on the engine that compiles kernels, or on the one that it names."""


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """mxcomp-run sets variables for the rest of its process, which here goes on to other tests."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest) -> None:
    """Most programs here are small: the simulator would compile their kernels for longer than it then runs them."""
    if not str(request.path.relative_to(TESTS)).startswith(COMPILED):
        request.getfixturevalue("numpy_engine")


@pytest.fixture
def numpy_engine(environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For programs so small, and so many, that the simulator would compile their kernels for longer than it runs them.

    Engines are compared in test/sim; that they run whole programs alike, in the tests here that do not take this.
    """
    if "MXCOMP_SIM_ENGINE" not in os.environ:
        monkeypatch.setenv("MXCOMP_SIM_ENGINE", "numpy")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")
    parser.addoption("--update-docs", action="store_true", help="write tables of the documentation that tests make")
    parser.addoption("--part", metavar="K/N", help="of the slow tests every N-th, from the K-th on: of each kind some")


LONG = (
    "test_compile.py", "test_in_place.py", "test_lint.py", "test_corpus_triton.py", "test_ukernels.py", "test_run.py",
    "test_in_rows.py", "test_failures.py", "test_gated_experts.py", "test_plugin.py", "test_epilogues.py",
    "test_shapes.py", "test_parameters.py", "test_properties.py", "test_machines.py", "test_profile_names.py",
    "test_torch_decompositions.py", "test_versions.py", "test_snippets.py", "test_torch_dynamic_attention.py",
    "test_torch_attention.py", "test_few_rows.py", "test_bytecode.py", "test_models.py", "test_torch_caches.py",
    "test_interrupts.py", "test_mutants.py", "test_chain.py", "test_packed_hidden.py", "test_tune.py",
    "test_torch_rotated_rows.py", "test_dual.py", "test_attention.py", "test_profile.py",
    "test_torch_dynamic_sizes.py", "test_torch_export.py", "test_comparison.py", "test_verify.py", "test_faults.py",
    "test_fused_quantisers.py", "test_processes.py", "test_examine.py", "kernel.mlir", "test_routing.py",
    "test_parts_of_k.py", "compile.mlir", "test_fusions.py", "test_plugin_spellings.py", "test_fast_kernels.py",
    "test_producers.py", "registry.mlir", "test_parameter_views.py", "test_hidden.py", "test_resident.py",
)  # fmt: skip
"""Files that take longest, with the longest first: a worker that is done with a file takes the next one."""


SLOW = tuple(line for line in (TESTS / "slow.txt").read_text().splitlines() if not line.startswith("#"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))
    unused, files = set(SLOW), {str(item.path.relative_to(TESTS)) for item in items}
    for item in items:
        if (name := item.nodeid.removeprefix("test/")).startswith(SLOW):
            item.add_marker(pytest.mark.slow)
            unused.difference_update(filter(name.startswith, SLOW))
    whole = not any("::" in argument for argument in config.args)
    if whole and (left := sorted(line for line in unused if line.split("::")[0] in files)):
        raise pytest.UsageError(f"test/slow.txt names no test: {', '.join(left)}")
    if part := config.option.part:
        first, step = map(int, part.split("/"))
        items[:] = [item for item in items if item.get_closest_marker("slow")][first - 1 :: step]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays to the end: looking for garbage among it would take seconds in each process.

    Garbage of tests is looked for more rarely than by default, which takes 3 % of their time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        _list_operators_once()
        gc.freeze()
        gc.set_threshold(100_000, 20, 50)
        atexit.register(gc.unfreeze)  # or the bindings would say that they leak
        gc.enable()


def _list_operators_once() -> None:
    """Lets PyTorch look through its operators once: each decomposition would, for each of their 30 namespaces."""
    if "torch" in sys.modules:
        from torch._export import utils

        utils._materialize_cpp_cia_ops = cache(utils._materialize_cpp_cia_ops)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".lit":
        return LitFolders.from_parent(parent, path=file_path)
    if file_path.suffix == ".mlir" and "inputs" not in file_path.parts:
        return LitFile.from_parent(parent, path=file_path)
    return None


class LitFile(pytest.File):
    """A file that is one lit test."""

    def collect(self) -> Iterator[pytest.Item]:
        yield LitItem.from_parent(self, name="lit", file=self.path)


class LitFolders(pytest.File):
    """A list of folders outside of this one that hold lit tests, among other files."""

    def collect(self) -> Iterator[pytest.Item]:
        for folder in self.path.read_text().split():
            for file in sorted((ROOT / folder).rglob("*")):
                text = file.read_text() if file.suffix in (".mlir", ".py", ".sh") else ""
                if "RUN:" in text:
                    item = LitItem.from_parent(self, name=str(file.relative_to(ROOT)), file=file)
                    if "# slow:" in text:
                        item.add_marker(pytest.mark.slow)
                    yield item


class LitItem(pytest.Item):
    """Runs one file by lit, in this process."""

    def __init__(self, file: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file = file

    def runtest(self) -> None:
        suite, lit_config = _suite()
        test = lit.Test.Test(suite, self.file.relative_to(ROOT).parts, suite.config)
        result = lit.worker._execute(test, lit_config)
        if result.code is lit.Test.UNSUPPORTED:
            pytest.skip(result.output)
        if result.code.isFailure:
            raise LitError(result.output)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str | TerminalRepr:
        if isinstance(excinfo.value, LitError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.file, 0, str(self.file.relative_to(ROOT))


class LitError(Exception):
    """A lit test failed; the message is its output."""


@cache
def _suite() -> tuple[lit.Test.TestSuite, lit.LitConfig.LitConfig]:
    """A test suite with our configuration whose root is the repository."""
    lit_config = lit.LitConfig.LitConfig(
        progname="lit",
        path=[],
        diagnostic_level="note",
        useValgrind=False,
        valgrindLeakCheck=False,
        valgrindArgs=[],
        noExecute=False,
        debug=False,
        isWindows=False,
        order="smart",
        params={},
    )
    config = lit.TestingConfig.TestingConfig.fromdefaults(lit_config)
    config.load_from_path(str(TESTS / "lit.cfg.py"), lit_config)
    return lit.Test.TestSuite(config.name, str(ROOT), config.test_exec_root, config, lit_config), lit_config
