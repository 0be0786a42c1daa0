"""What goes wrong in the simulator comes back as an error, and the next run is none the worse for it."""

from __future__ import annotations

import os
import re
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, reduce

import numpy as np
import pytest
from corpus.mutation import sites
from modules import Matmul, source
from processes import workers
from stock import compiled

import mxcomp
from mxcomp.errors import InputError, VerifyError
from mxcomp.run import runtime
from mxcomp.run.resident import Resident
from mxcomp.run.runtime import RunError
from mxcomp.sim.code_object import load

MATMUL = Matmul(64, 256, 512)
READS_EMPTY = """
#rows = affine_map<(m, n) -> (m, n)>
func.func @main(%x: tensor<37x129xf32>) -> tensor<37x129xf32> {
  %never = tensor.empty() : tensor<37x129xf32>
  %kept = util.optimization_barrier %never : tensor<37x129xf32>
  %empty = tensor.empty() : tensor<37x129xf32>
  %y = linalg.generic {indexing_maps = [#rows, #rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x, %kept : tensor<37x129xf32>, tensor<37x129xf32>) outs(%empty : tensor<37x129xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<37x129xf32>
  return %y : tensor<37x129xf32>
}
"""
STAGES = """
#rows = affine_map<(m, n) -> (m)>
#all = affine_map<(m, n) -> (m, n)>
func.func @main(%x: tensor<64x64xf32>) -> tensor<64x?xf32> {
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %rows = tensor.empty() : tensor<64xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%rows : tensor<64xf32>) -> tensor<64xf32>
  %0 = linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x64xf32>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %s = arith.addf %a, %out : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  %n = util.optimization_barrier %c64 : index
  %empty = tensor.empty(%n) : tensor<64x?xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #all], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<64xf32>) outs(%empty : tensor<64x?xf32>) {
  ^bb0(%a: f32, %out: f32):
    linalg.yield %a : f32
  } -> tensor<64x?xf32>
  %2 = linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%1 : tensor<64x?xf32>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %s = arith.addf %a, %out : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  %k = util.optimization_barrier %c64 : index
  %other = tensor.empty(%k) : tensor<64x?xf32>
  %3 = linalg.generic {indexing_maps = [#rows, #all], iterator_types = ["parallel", "parallel"]}
      ins(%2 : tensor<64xf32>) outs(%other : tensor<64x?xf32>) {
  ^bb0(%a: f32, %out: f32):
    linalg.yield %a : f32
  } -> tensor<64x?xf32>
  return %3 : tensor<64x?xf32>
}
"""
"""Sizes are known as late as on the host: IREE allocates each tensor behind the work on the one before."""
LARGE = Matmul(1024, 1024, 2048)
S_SENDMSGHALT = struct.pack("<I", 0xBF910000)


@cache
def vmfb(matmul: Matmul = MATMUL) -> bytes:
    return mxcomp.compile(source(matmul)).vmfb


def check_run(**settings: str) -> None:
    (result,) = runtime.run(vmfb(), None, MATMUL.inputs, device="sim", **settings)
    assert MATMUL.error(result) <= MATMUL.bound


def code_object() -> tuple[int, bytes]:
    """Where the program's code object starts, and all that follows."""
    start = vmfb().index(b"\x7fELF\2\1")
    return start, vmfb()[start:]


def failing(program: bytes, pattern: str, **settings: str) -> None:
    with pytest.raises(RunError, match=pattern):
        runtime.run(program, None, MATMUL.inputs, device="sim", **settings)


def test_finding_names_kernel_instruction_and_cause() -> None:
    start, code = code_object()
    name = next(iter(load(code).kernels))
    broken = vmfb()[:start] + sites(code, name)[-1].removed(code)
    pattern = rf"(?s)hipErrorLaunchFailure.*kernel {name}.*error\[late\] reads v\d+ in flight.*: buffer_store_dword"
    for _ in range(2):
        failing(broken, pattern)
        check_run()
    runtime.run(broken, None, MATMUL.inputs, device="sim", checks="bounds,race")
    failing(broken, pattern, checks="late", engine="numpy")
    check_run(engine="numpy", checks="none", schedule="random", seed="5")
    check_run()


def test_tensor_that_nobody_wrote() -> None:
    """A bug of this kind once gave wrong numbers and a warning."""
    program = compiled(READS_EMPTY)
    x = np.ones((37, 129), np.float32)
    pattern = (
        r"(?s)hipErrorLaunchFailure.*kernel main_dispatch_0_elementwise_\w+\s+error\[uninit\] reads memory never "
        r"written: byte 0 of argument 1 \(19092 bytes are allocated there, 0 of them written\); what it stores in byte "
        r"\d of argument 2 depends on it at 0x\w+: buffer_load_dword"
    )
    for engine in ("fast", "numpy"):
        with pytest.raises(RunError, match=pattern):
            runtime.run(program, "main", [x], device="sim", engine=engine)
    runtime.run(program, "main", [x], device="sim", checks="bounds,race,late,hazard")
    check_run(checks="all")


def test_unimplemented_instruction() -> None:
    start, code = code_object()
    name = next(iter(load(code).kernels))
    place = start + sites(code, name)[0].position
    broken = vmfb()[:place] + S_SENDMSGHALT + vmfb()[place + 4 :]
    failing(broken, rf"(?s)kernel {name}.*not implemented: s_sendmsghalt")
    check_run()


def each_broken(program: bytes) -> Iterator[tuple[str, bytes]]:
    """Programs of which one kernel, that of the name, fails at the end of its work."""
    start = program.index(b"\x7fELF\2\1")
    code = program[start:]
    names = list(load(code).kernels)
    assert names
    for name in names:
        place = start + sites(code, name)[-1].position
        yield name, program[:place] + S_SENDMSGHALT + program[place + 4 :]


def outcome(call: Callable[[], object]) -> BaseException | None:
    """What a call raises, if anything; one that does not end raises too."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
            raised.append(None)
        except RunError as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    return raised[0] if raised else TimeoutError()


def outcome_of(program: bytes, size: int = 64) -> BaseException | None:
    """What a run of STAGES raises."""
    x = np.ones((size, size), np.float32)
    return outcome(lambda: runtime.run(program, "main", [x], device="sim", engine="numpy"))


def test_allocations_behind_what_fails() -> None:
    """IREE 3.13 waited for ever for memory that it had queued behind a launch that failed."""
    program = compiled(STAGES)
    start = program.index(b"\x7fELF\2\1")
    code = program[start:]
    assert len(load(code).kernels) > 1
    for name in load(code).kernels:
        place = start + sites(code, name)[-1].position
        broken = program[:place] + S_SENDMSGHALT + program[place + 4 :]
        error = outcome_of(broken)
        assert re.search(rf"(?s)hipErrorLaunchFailure.*kernel {name}.*not implemented: s_sendmsghalt", str(error)), (
            error
        )


SIZED = {
    "64x64xf32>) ->": "64x64xf32>, %first: index, %last: index) ->",
    "%n = util.optimization_barrier %c64": "%n = util.optimization_barrier %first",
    "%k = util.optimization_barrier %c64": "%k = util.optimization_barrier %last",
}


def test_allocations_behind_one_that_is_too_large() -> None:
    """IREE 3.13 waits for ever for memory that it has queued behind memory that it does not get."""
    program = compiled(reduce(lambda text, old: text.replace(old, SIZED[old], 1), SIZED, STAGES))
    pattern = r"not enough memory\n.*hipErrorOutOfMemory.* 2199023255552 bytes asked for, this machine has \d+ left"
    x = np.ones((64, 64), np.float32)
    with Resident(program, "sim") as session:
        for sizes in ((64, 64), (1 << 33, 64), (64, 1 << 33), (64, 64)):
            found = outcome(lambda sizes=sizes: session.main(x, *sizes))
            assert found is None if max(sizes) == 64 else re.search(pattern, str(found)), (sizes, found)


@pytest.mark.slow
def test_allocations_behind_a_worker_that_dies() -> None:
    """Whenever it does: the numpy engine takes long over each stage."""
    program = compiled(STAGES.replace("64", "640"))
    for seconds in (0.5, 1, 1.5, 2, 2.5):
        with ThreadPoolExecutor(1) as pool:  # this thread's device may have been the last worker's
            pool.submit(check_run).result()
        (worker,) = workers()
        threading.Timer(seconds, os.kill, (worker, signal.SIGKILL)).start()
        error = outcome_of(program, 640)
        assert "worker" in str(error), (seconds, error)
    with suppress(RunError):
        check_run()


def test_failure_of_a_program_that_returns_nothing() -> None:
    kept = STAGES.replace("-> tensor<64x?xf32> {", "{", 1).replace(
        "return %3 :",
        "%kept = tensor.cast %3 : tensor<64x?xf32> to tensor<64x64xf32> "
        "util.global.store %kept, @kept : tensor<64x64xf32> return //",
    )
    program = compiled(f"""
util.global private mutable @kept = dense<0.0> : tensor<64x64xf32>
func.func @read() -> tensor<64x64xf32> {{
  %0 = util.global.load @kept : tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}}
{kept}""")
    for _, broken in each_broken(program):
        assert "not implemented: s_sendmsghalt" in str(outcome_of(broken))


def test_settings_that_make_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    for settings, pattern in (
        ({"engine": "slow"}, "engine 'slow': expected fast"),
        ({"checks": "race,rice"}, "check 'rice': expected .*race"),
        ({"schedule": "never"}, "schedule 'never': expected forward"),
        ({"seed": "x"}, "seed 'x': expected a whole number"),
    ):
        with pytest.raises(InputError, match=pattern):
            runtime.run(vmfb(), None, MATMUL.inputs, device="sim", **settings)
        ((name, value),) = settings.items()
        monkeypatch.setenv(f"MXCOMP_SIM_{name.upper()}", value)
        with pytest.raises(InputError, match=pattern):
            runtime.run(vmfb(), None, MATMUL.inputs, device="sim")
        monkeypatch.delenv(f"MXCOMP_SIM_{name.upper()}")
    check_run()


def test_limit_of_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXCOMP_SIM_MAX_INSTRUCTIONS", "20")
    failing(vmfb(), "more than 20 instructions, an endless loop", engine="numpy")
    monkeypatch.setenv("MXCOMP_SIM_MAX_INSTRUCTIONS", "few")
    with pytest.raises(InputError, match="max_instructions 'few': expected a whole number"):
        check_run()
    monkeypatch.undo()
    check_run()


def test_wrong_use() -> None:
    with pytest.raises(InputError, match="device 'gpu': expected cpu, sim, hip"):
        runtime.run(vmfb(), None, MATMUL.inputs, device="gpu")
    with pytest.raises(InputError, match="no function 'nothing': expected main"):
        runtime.run(vmfb(), "nothing", MATMUL.inputs, device="sim")
    with pytest.raises(VerifyError, match="cannot be loaded on device 'cpu'"):
        runtime.run(vmfb(), None, MATMUL.inputs)
    with pytest.raises(RunError, match="INVALID_ARGUMENT"):
        runtime.run(vmfb(), None, MATMUL.inputs[:2], device="sim")
    check_run()


def test_worker_killed_between_runs() -> None:
    check_run()
    (worker,) = workers()
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(RunError, match="worker"):
        check_run()
    check_run()
    assert len(workers()) == 1
    assert workers() != [worker]


def test_worker_killed_during_a_launch() -> None:
    check_run()
    (worker,) = workers()
    vmfb(LARGE)
    threading.Timer(1.0, os.kill, (worker, signal.SIGKILL)).start()
    with pytest.raises(RunError, match=rf"hipErrorLaunchFailure.*worker \(process {worker}\) died"):
        runtime.run(vmfb(LARGE), None, LARGE.inputs, device="sim", engine="numpy")
    check_run()


def test_results_do_not_depend_on_the_engine() -> None:
    results = [
        runtime.run(vmfb(), None, MATMUL.inputs, device="sim", engine=engine, schedule=schedule)[0]
        for engine, schedule in (("fast", "forward"), ("numpy", "reverse"), ("fast", "random"))
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_message_is_one_that_can_be_read() -> None:
    start, code = code_object()
    name = next(iter(load(code).kernels))
    broken = vmfb()[:start] + sites(code, name)[-1].removed(code)
    with pytest.raises(RunError) as caught:
        runtime.run(broken, None, MATMUL.inputs, device="sim")
    assert len(re.findall("error\\[late\\]", str(caught.value))) <= 20
    assert len(str(caught.value)) < 5000
