"""Tuning: candidates are timed where they are asked to be, wrong ones never win, and nothing that was found is lost."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxcomp
from mxcomp.errors import InputError
from mxcomp.formats import decode, decode_e8m0, unpack_bits
from mxcomp.hip import library
from mxcomp.layout.problem import Problem
from mxcomp.measuring.dispatches import Stopwatch
from mxcomp.measuring.repeats import Recorded
from mxcomp.measuring.subject import Subject
from mxcomp.selection import tuned_lines
from mxcomp.selection.tuned_lines import Key, Line
from mxcomp.target import get_target
from mxcomp.tools import tune as tool
from mxcomp.tuning import Failure, Outcome, Settings, Trial, attempt, problems_of, tune

SCALES_AND_RESULT = ("f8E8M0FNU", "f8E8M0FNU", "f32")
FP4 = ("f4E2M1FN", "f4E2M1FN")
PROBLEM = Problem(40, 64, 512, (*FP4, *SCALES_AND_RESULT))
KEY = Key("gfx950", PROBLEM, "bf16")
INPUTS = Path(__file__).parent.parent / "tools/inputs"
M16, M32 = "mx_f4E2M1FN_f4E2M1FN_f32_m16_n16_k512", "mx_f4E2M1FN_f4E2M1FN_f32_m32_n32_k512"


def growing() -> Stopwatch:
    """The simulated device for the GPU, and a clock on which every call takes longer: 1, 5, 9, 13 µs."""
    return Stopwatch("sim", (1e-6 * tick**2 for tick in itertools.count()).__next__, runs=2, count=3)


def test_k_in_parts() -> None:
    """Where that is the fastest, and timed with the dispatch that adds parts up."""
    (line,) = tune([replace(KEY, problem=replace(PROBLEM, m=256, n=5120, k=25600))])
    assert isinstance(line, Line)
    assert line.split_k == 2
    key = replace(KEY, problem=replace(PROBLEM, k=2048))
    whole, parts = (attempt(Trial(key, M32, "sim", parts=count)) for count in (1, 2))
    assert parts.us is not None and whole.us is not None
    assert parts.us > whole.us + 1.5  # a launch
    assert attempt(Trial(key, M32, "sim", parts=3)).us is None
    measured = attempt(Trial(key, M32, "hip", parts=2), growing())
    assert measured.us is not None, measured.reason


def test_ranked_by_the_table_of_replays() -> None:
    line, failure = tune([KEY, replace(KEY, problem=replace(PROBLEM, k=33))])
    assert isinstance(line, Line)
    assert line.source == "modelled"
    assert line.margin is not None
    assert line.margin >= 0
    assert isinstance(failure, Failure)
    assert failure.reason.startswith("no ukernel with known times fits: expected K to be a multiple of 32")


def test_candidates_are_compiled_and_replayed() -> None:
    """The time of the kernel alone, near that of the table of replays."""
    (line,) = tune([KEY], Settings(candidates=1))
    (ranked,) = tune([KEY])
    assert isinstance(line, Line)
    assert isinstance(ranked, Line)
    assert (line.kernel, line.source, line.margin) == (ranked.kernel, "modelled", None)
    assert line.us == pytest.approx(ranked.us, rel=0.1)


def test_a_candidate_that_does_not_fit() -> None:
    outcome = attempt(Trial(KEY, "mx_f4_f4_f32_row_major_m128_n256_k256"))
    assert outcome.us is None
    assert "it is not used" in outcome.reason


@pytest.mark.parametrize(
    ("types", "result", "batch"),
    [(FP4, "bf16", ()), (("f8E5M2", "f6E2M3FN"), "f16", (2,)), (("f8E4M3FN", "f4E2M1FN"), "f32", ())],
)
def test_measuring_checks_first(types: tuple[str, str], result: str, batch: tuple[int, ...]) -> None:
    """On the simulated device: the result is right, and a program in which the dispatch is repeated is timed."""
    key = Key("gfx950", Problem(40, 64, 512, (*types, *SCALES_AND_RESULT), batch), result)
    kernel = f"mx_{types[0]}_{types[1]}_f32_m16_n16_k512"
    outcome = attempt(Trial(key, kernel, "hip"), growing())
    assert outcome.us == pytest.approx(5.0)  # 9 and 13 µs with three of it are 4 and 6 each more than 1 µs with one
    assert outcome == Outcome(kernel, "measured", outcome.us)


def test_times_that_mean_nothing_are_none() -> None:
    outcome = attempt(Trial(KEY, M16, "hip"), Stopwatch("sim", lambda: 0.0, runs=1, count=2))
    assert outcome.us is None
    assert "takes less than calls differ by" in outcome.reason


@pytest.mark.parametrize("result", ["f32", "f16", "bf16"])
def test_what_is_wrong_is_found(result: str) -> None:
    """One element of a result that is right in float64."""
    subject = Subject(PROBLEM, result)
    operands = subject.operands()
    program = mxcomp.compile(subject.source(), ukernels=M16)
    (found,) = program.run(*operands)
    assert subject.objection(operands, found) == ""
    wrong = found.copy()
    wrong[3, 5] = 0
    assert subject.objection(operands, wrong).startswith("element (3, 5) is 0, expected ")
    other = [operands[0], np.roll(operands[1], 1, axis=1), *operands[2:]]
    assert subject.objection(other, found).startswith("element (0, 0) is ")


def test_large_results_are_checked_from_end_to_end() -> None:
    subject = Subject(replace(PROBLEM, m=2050, n=4096, k=64))
    operands = subject.operands()
    lhs, lhs_scale, rhs, rhs_scale = (each.view(np.uint8) for each in operands)
    a, b = (
        decode(unpack_bits(codes, FP4[0]), FP4[0]) * decode_e8m0(scales).repeat(32, axis=1).astype(np.float64)
        for codes, scales in ((lhs, lhs_scale), (rhs, rhs_scale))
    )
    right = (a @ b.T).astype(np.float32)
    assert subject.objection(operands, right) == ""
    for row, column in ((2049, 17), (1023, 0), (0, 4095)):
        wrong = right.copy()
        wrong[row, column] += 1e30
        assert f"element ({row}, {column})" in subject.objection(operands, wrong)


def test_one_dispatch_is_repeated() -> None:
    """And what it takes is what more of it take longer."""
    subject = Subject(PROBLEM)
    program = mxcomp.compile(subject.source(), ukernels=M16, compile_to="hal")
    recorded = Recorded(program.vmfb, get_target("gfx950").iree_flags)
    assert len(recorded.kernels) == 5
    with_three = mxcomp.Program(recorded.program(4, 3), program.report).profile(*subject.nothing(), execute=False)
    assert [each.kernel for each in with_three.dispatches] == [*recorded.kernels, *recorded.kernels[4:] * 2]
    ticks = iter([0.0, 12e-6, 20e-6, 34e-6])
    watch = Stopwatch("sim", ticks.__next__, runs=2, count=3)
    found = watch.dispatch(recorded, subject.operands(), 4, once=10.0)
    assert (found.kernel, found.us, found.low, found.high) == pytest.approx((recorded.kernels[4], 1.5, 1.0, 2.0))


def outcome_of(trial: Trial, answers: dict[int, Callable[[str], Outcome]]) -> Outcome:
    return answers[trial.key.problem.m or 0](trial.kernel)


def test_candidates_that_fail_never_win() -> None:
    def second(kernel: str) -> Outcome:
        right = kernel == M32
        return Outcome(kernel, "measured", 5.0 if right else None, "" if right else "its result is wrong")

    answers = {32: second, 16: lambda kernel: Outcome(kernel, "measured", None, "its result is wrong: element (0, 0)")}
    keys = [replace(KEY, problem=replace(PROBLEM, m=m)) for m in answers]
    task = partial(outcome_of, answers=answers)
    with ThreadPoolExecutor(2) as executor:
        line, failure = tune(keys, Settings("hip", 20), executor, task)
    assert isinstance(line, Line)
    assert (line.kernel, line.source, line.us, line.margin) == (M32, "measured", 5.0, None)
    assert isinstance(failure, Failure)
    assert "no candidate is right" in failure.reason
    assert f"{M16}: its result is wrong: element (0, 0)" in failure.reason


def test_a_missing_device_is_no_candidates_fault() -> None:
    with pytest.raises(InputError, match="device 'nowhere'"):
        attempt(Trial(KEY, M16, "hip"), Stopwatch("nowhere"))


def test_an_executor_gets_plain_data_ahead() -> None:
    """So that machines elsewhere can do it, and are not left waiting."""
    submitted: list[Trial] = []

    class Recording(ThreadPoolExecutor):
        def submit(self, task: Any, /, *args: Any, **more: Any) -> Future[Any]:
            submitted.extend(args)
            return super().submit(task, *args, **more)

    keys = [replace(KEY, problem=replace(PROBLEM, m=m)) for m in range(1, 4)]
    with Recording(1) as executor:
        found = tune(keys, Settings(candidates=2), executor, lambda trial: Outcome(trial.kernel, "modelled", 1.0))
        assert isinstance(next(found), Line)
        assert [trial.key.problem.m for trial in submitted] == [1, 1, 2, 2, 3, 3]


def test_interrupted_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """What was found before an interrupt is in the table, and is not looked for again."""
    table = tmp_path / "t.csv"
    shapes = ["64x128x256", "64x256x256", "64x512x256"]
    from mxcomp import tuning

    def interrupted(keys: Any, *args: Any) -> Any:
        yield from tune(list(keys)[:2], *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tuning, "tune", interrupted)
        assert tool.main([*shapes, "-o", str(table)]) == 130
    assert capfd.readouterr().err == "mxcomp-tune: interrupted\n"
    before, faults = tuned_lines.read(table)
    assert len(before) == 2
    assert not faults
    assert tool.main([*shapes, "-o", str(table)]) == 0
    assert "1 tuned, 2 in the table before" in capfd.readouterr().err
    assert tuned_lines.read(table)[0][:2] == before


def test_measured_lines_take_the_place_of_modelled_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mxcomp import tuning

    table = tmp_path / "t.csv"
    assert tool.main(["64x128x256", "-o", str(table)]) == 0

    def measured(keys: Any, *_: Any) -> Any:
        return (Line(key, M16, "measured", 9.0) for key in keys)

    monkeypatch.setattr(tuning, "tune", measured)
    monkeypatch.setattr(tool, "_CANDIDATES", {"sim": 0, "hip": 0})
    with pytest.raises(SystemExit):
        tool.main(["64x128x256", "-o", str(table), "--device=cuda"])
    assert tool.main(["64x128x256", "-o", str(table), "--device=hip"]) == 1  # nothing to measure
    assert tool.main(["64x128x256", "-o", str(table), "--device=hip", "--candidates=1", "--jobs=1"]) == 0
    assert [line.source for line in tuned_lines.read(table)[0]] == ["measured"]
    assert tool.main(["64x128x256", "-o", str(table)]) == 0
    assert [line.source for line in tuned_lines.read(table)[0]] == ["measured"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([f"{INPUTS}/half.mlir"], "half.mlir: no scaled matmul to tune"),
        (["no_such.mlir"], "cannot read no_such.mlir: No such file or directory"),
        (["64x64"], "64x64: expected sizes as MxNxK"),
        (["64x64x64", "--device=hip", "--candidates=0"], "nothing would be measured: expected 1 or more"),
        (["64x64x64", "--target=gfx942"], "unknown target 'gfx942': expected one of gfx950"),
        (["64x64x64", "-o", "/no/such/t.csv"], "cannot write /no/such/t.csv: No such file or directory"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capfd: Any) -> None:
    assert tool.main(arguments) == 1
    assert message in capfd.readouterr().err


def test_models(tmp_path: Path) -> None:
    """Each problem once, with what is stored; what cannot be tuned with the reason."""
    path = tmp_path / "model.mlir"
    path.write_text(Subject(PROBLEM, "bf16").source())
    assert problems_of(path).keys == (KEY,)
    assert problems_of(path).left == ()
    found = problems_of(INPUTS / "two_dynamic_sizes.mlir")
    assert not found.keys
    assert all("dynamic" in reason and "as MxNxK" in reason for reason in found.left)


@pytest.mark.slow
def test_an_interrupt_ends_workers_silently(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mxcomp.tools.tune", "2048x4096x4096", "--candidates=3", "--jobs=2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(4)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.read() == "mxcomp-tune: interrupted\n"
    assert process.wait() == 130


@pytest.mark.slow
def test_the_command_on_a_gpu(tmp_path: Path) -> None:
    """IREE's HIP driver as on a machine that has one, with the simulated driver library in ROCm's place."""
    table = tmp_path / "t.csv"
    command = [sys.executable, "-m", "mxcomp.tools.tune", "16x16x128", "--device=hip", "--candidates=1", "-o", table]
    driver = {"IREE_HIP_DYLIB_PATH": str(library.hip_dylib_directory()), **library.environment()}
    subprocess.run(command, env=os.environ | driver, check=True)
    (line,), faults = tuned_lines.read(table)
    assert not faults
    assert line.source == "measured"
