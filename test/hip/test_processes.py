"""Many runs, threads, processes and devices."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from modules import Matmul, source
from processes import ends_within, workers

import mxcomp
from mxcomp.hip import library

HERE = Path(__file__).parent
PATHS = f"""
import os, sys
sys.path += ["{HERE}", "{HERE.parent / "e2e"}", "{HERE.parent / "sim"}"]
"""
START = f"""
{PATHS}
from pathlib import Path
from modules import Matmul, source
import mxcomp
matmul = Matmul(64, 256, 512)
program = mxcomp.Program(Path(os.environ["TEST_PROGRAM"]).read_bytes(), None)
def check():
    (result,) = program.run(*matmul.inputs)
    assert matmul.error(result) <= matmul.bound
"""


@cache
def folder() -> TemporaryDirectory[str]:
    """Holds the program of all processes, compiled once."""
    made = TemporaryDirectory()
    mxcomp.compile(source(Matmul(64, 256, 512))).save(f"{made.name}/program.vmfb")
    return made


def python(script: str, start: str = START, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", start + script],
        env=os.environ | {"TEST_PROGRAM": f"{folder().name}/program.vmfb"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    try:
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_invocations_need_no_more_memory(count: int) -> None:
    """On one device, with IREE's Python API; memory of this process and of the worker, after the first ones."""
    out = finish(
        python(
            f"""
from iree import runtime as rt
from mxcomp.run import devices
from processes import resident_kib, workers
os.environ.update(devices.library.environment())
config = rt.Config(device=devices.simulator().create_default_device())
module = rt.load_vm_module(rt.VmModule.copy_buffer(config.vm_instance, program.vmfb), config)
for k in range({count}):
    result = module["main"](*matmul.inputs).to_host()
    if k in (50, {count} - 1):
        print(resident_kib(os.getpid()), resident_kib(*workers()))
assert matmul.error(result) <= matmul.bound
"""
        )
    )
    before, after = (list(map(int, line.split())) for line in out.splitlines())
    assert after[0] < 1.05 * before[0]
    assert after[1] < 1.05 * before[1]


@pytest.mark.parametrize("count", [70, pytest.param(120, marks=pytest.mark.slow)])
def test_programs_come_and_go(count: int) -> None:
    """Loading a program for each run neither piles up devices nor code."""
    out = finish(
        python(
            f"""
from processes import resident_kib, workers
for k in range({count}):
    check()
    if k in (40, {count} - 1):
        print(resident_kib(os.getpid()), resident_kib(*workers()), len(os.listdir("/proc/self/task")))
"""
        )
    )
    before, after = (list(map(int, line.split())) for line in out.splitlines())
    assert after[0] < 1.10 * before[0]
    assert after[1] < 1.10 * before[1]
    assert after[2] <= before[2]


PLAIN_IREE = """
from iree import runtime as rt
from mxcomp.hip import library
directory = str(library.hip_dylib_directory())
def call(config, vmfb):
    module = rt.load_vm_module(rt.VmModule.copy_buffer(config.vm_instance, vmfb), config)
    return module["main"](*matmul.inputs).to_host()
"""


def test_python_api_of_iree_by_variable() -> None:
    """A kernel that fails takes its device with it, not the process."""
    script = """
from corpus.mutation import sites
from mxcomp.sim.code_object import load
os.environ["IREE_HIP_DYLIB_PATH"] = directory
assert matmul.error(call(rt.Config("hip"), program.vmfb)) <= matmul.bound
start = program.vmfb.index(b"\x7fELF")
code = program.vmfb[start:]
broken = program.vmfb[:start] + sites(code, next(iter(load(code).kernels)))[-1].removed(code)
device = rt.get_driver("hip").create_default_device()
for expected in ("error[late]", "error[late]"):
    try:
        call(rt.Config(device=device), broken)
    except RuntimeError as error:
        assert expected in str(error), error
    else:
        raise AssertionError
assert matmul.error(call(rt.Config("hip"), program.vmfb)) <= matmul.bound
check()
print("fine")
"""
    assert finish(python(PLAIN_IREE + script)) == "fine\n"


def test_python_api_of_iree_by_flag() -> None:
    script = """
rt.flags.parse_flags(f"--hip_dylib_path={directory}")
device = rt.get_device("hip://0")
assert matmul.error(call(rt.Config(device=device), program.vmfb)) <= matmul.bound
check()
print("fine")
"""
    assert finish(python(PLAIN_IREE + script)) == "fine\n"


def test_another_library_given_by_flag() -> None:
    script = """
rt.flags.parse_flags("--hip_dylib_path=/nowhere")
try:
    check()
except mxcomp.errors.InputError as error:
    assert "/nowhere" in str(error), error
    print("fine")
"""
    assert finish(python("import mxcomp.errors" + PLAIN_IREE + script)) == "fine\n"


def test_memory_never_written() -> None:
    script = """
import numpy as np
from hip_api import DEVICE_TO_DEVICE, Hip, HipError
hip, numbers = Hip(), np.arange(128, dtype=np.uint32)
kernel = hip.new("hipModuleGetFunction", hip.load(), b"fine_copy")
target = hip.new("hipMalloc", 512)
written, never = hip.upload(numbers), hip.new("hipMalloc", 512)
filled, copied = hip.new("hipMalloc", 512), hip.new("hipMalloc", 512)
hip.hipMemset(filled, 1, 512)
hip.hipMemcpy(copied, written, 512, DEVICE_TO_DEVICE)
for source in (written, filled, copied, hip.new("hipHostMalloc", 512, 0)):
    hip.launch(kernel, source, target)
partly = hip.new("hipMalloc", 512)
hip.hipMemcpy(partly, written, 500, DEVICE_TO_DEVICE)
for source in (never, partly):
    try:
        hip.launch(kernel, source, target)
    except HipError as error:
        print(error)
"""
    process = python(script, PATHS)
    out, err = process.communicate(timeout=60)
    assert [line for line in err.splitlines() if ": compiling " not in line] == []
    first, second = (error for error in out.splitlines() if "error[uninit]" in error)
    assert "reads memory never written: byte 0 of the allocation at" in first
    assert "reads memory never written: byte 500 of the allocation at" in second
    assert "(512 bytes are allocated there, 500 of them written)" in second


def test_two_processes_do_not_disturb_each_other() -> None:
    both = [python("for _ in range(8): check()") for _ in range(2)]
    for process in both:
        finish(process)


def test_a_process_that_forks() -> None:
    """The child has neither the parent's memory nor its worker; IREE's own threads do not survive a fork."""
    script = """
import numpy as np
from hip_api import Hip, HipError
from processes import workers
hip, numbers = Hip(), np.arange(128, dtype=np.uint32)
def copy():
    kernel = hip.new("hipModuleGetFunction", hip.load(), b"fine_copy")
    source, target = hip.upload(numbers), hip.new("hipMalloc", 512)
    hip.launch(kernel, source, target)
    assert (hip.download(target, numbers) == numbers).all() and len(workers()) == 1
    return source
def in_child():
    try:
        hip.download(before, numbers)
    except HipError:
        copy()
        return 0
    return 1
before = copy()
child = os.fork()
if not child:
    os._exit(in_child())
copy()
assert os.waitpid(child, 0)[1] == 0
assert (hip.download(before, numbers) == numbers).all()
copy()
print("fine")
"""
    assert finish(python(script, PATHS)) == "fine\n"


def test_no_worker_outlives_its_process() -> None:
    for way in (signal.SIGTERM, signal.SIGKILL):
        process = python("check(); print('ready', flush=True); import time; time.sleep(60)")
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (worker,) = workers(process.pid)
        process.send_signal(way)
        process.wait(10)
        process.communicate()
        assert ends_within(worker, 5)


def test_interrupts_leave_the_worker_alone() -> None:
    out = finish(
        python(
            """
import signal
from processes import workers
check()
os.kill(*workers(), signal.SIGINT)
check()
print("fine")
"""
        )
    )
    assert out == "fine\n"


@pytest.mark.parametrize(
    "matmuls",
    [
        [Matmul(64, 256, 512, constant_rhs=k > 0, seed=k) for k in range(4)],
        pytest.param([Matmul(40 + 8 * k, 256, 512, seed=k) for k in range(4)], marks=pytest.mark.slow),
    ],
    ids=["constants", "rows"],
)
def test_threads(matmuls: list[Matmul]) -> None:
    """Each thread has its own program and numbers. By default programs share kernels, which take long to compile."""
    programs = [mxcomp.compile(source(matmul)) for matmul in matmuls]

    def run(k: int) -> float:
        return max(matmuls[k].error(programs[k].run(*matmuls[k].inputs)[0]) for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        errors = list(pool.map(run, range(4)))
    assert all(error <= matmul.bound for error, matmul in zip(errors, matmuls, strict=True))


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_several_modules_on_one_device(count: int) -> None:
    matmuls = [Matmul(64, 256, 512), Matmul(64, 256, 512, constant_rhs=True), Matmul(64, 300, 512)][:count]
    programs = [mxcomp.compile(source(matmul)) for matmul in matmuls]
    for _ in range(2):
        for matmul, program in zip(matmuls, programs, strict=True):
            assert matmul.error(program.run(*matmul.inputs)[0]) <= matmul.bound


TWO_DEVICES = """
import numpy as np
from hip_api import DEVICE_TO_DEVICE, Hip, HipError
hip = Hip()
numbers = np.arange(128, dtype=np.uint32)
assert hip.number("hipGetDeviceCount") == 2
pointers, kernels = [], []
for device in range(2):
    with hip.on_device(device):
        pointers.append(hip.upload(numbers + device))
        kernels.append(hip.new("hipModuleGetFunction", hip.load(), b"fine_copy"))
def refuses(device):
    try:
        hip.launch(kernels[device], pointers[1 - device], pointers[device])
    except HipError as error:
        return "outside of every allocation" in str(error)
assert refuses(0) and refuses(1)
with hip.on_device(0):
    hip.hipDeviceEnablePeerAccess(1, 0)
with hip.on_device(1):
    pointers[1] = hip.upload(numbers + 1)
assert not refuses(0) and refuses(1)
assert (hip.download(pointers[0], numbers) == numbers + 1).all()
with hip.on_device(0):
    shared = hip.new("hipHostMalloc", 512, 0)
hip.launch(kernels[1], pointers[1], shared)
hip.hipMemcpy(pointers[1], pointers[0], 512, DEVICE_TO_DEVICE)
hip.hipFree(pointers[1])
assert refuses(0)
print("fine")
"""


def test_two_devices_have_their_own_memory() -> None:
    assert finish(python(TWO_DEVICES, PATHS, MXCOMP_SIM_DEVICES="2")) == "fine\n"


@pytest.mark.parametrize("device", ["hip://0", "hip://1"])
def test_iree_on_either_device(device: str, tmp_path: Path) -> None:
    matmul = Matmul(64, 256, 512)
    mxcomp.compile(source(matmul)).save(tmp_path / "m.vmfb")
    for k, array in enumerate(matmul.inputs):
        np.save(tmp_path / f"{k}.npy", array)
    inputs = [f"--input=@{tmp_path}/{k}.npy" for k in range(4)]
    tool = [sys.executable, "-m", "iree._runtime.scripts.iree_run_module", f"--device={device}"]
    flags = [f"--hip_dylib_path={library.hip_dylib_directory()}", f"--module={tmp_path}/m.vmfb", "--function=main"]
    subprocess.run(
        [*tool, *flags, *inputs, f"--output=@{tmp_path}/y.npy"],
        env=os.environ | {"MXCOMP_SIM_DEVICES": "2"},
        check=True,
        timeout=60,
    )
    assert matmul.error(np.load(tmp_path / "y.npy")) <= matmul.bound


def test_second_process_compiles_no_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes a warm program fast: the simulator finds kernels that another process has compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = """
matmul = Matmul(64, 128, 512)
program = mxcomp.compile(source(matmul), data_tiling=False)
check()
"""
    finish(python(script))
    made = {path: path.stat().st_ino for path in tmp_path.rglob("*") if path.is_file()}
    assert made
    finish(python(script))
    assert {path: path.stat().st_ino for path in tmp_path.rglob("*") if path.is_file()} == made
