"""IREE's texts get a first line that says what they mean."""

from __future__ import annotations

import pytest

from mxcomp.run.statuses import BRANCH, explained, is_refusal

SHAPE = (
    "Error invoking function: c/runtime/src/iree/modules/hal/utils/buffer_diagnostics.c:225: INVALID_ARGUMENT; input0 "
    "shape dimension 0 mismatch; expected 4 but have 5; expected shape `4x2`, actual shape `5x2`; while invoking native"
)
TYPE = (
    "buffer_diagnostics.c:191: INVALID_ARGUMENT; input1 element type mismatch; expected f32 (21000020) but have f64 "
    "(21000040); while invoking native function hal.buffer_view.assert"
)
KERNEL = (
    "stream_command_buffer.c:606: INTERNAL; HIP driver error 'hipErrorLaunchFailure' (719): the kernel failed on the "
    "simulated gfx950: kernel main\n  error[late] reads v2 in flight; workgroup (0, 0, 0), wave 0; while invoking "
    "native function hal.fence.await;"
)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (SHAPE, "argument 0 has the shape 5x2, expected 4x2"),
        (TYPE, "argument 1 has the element type f64, expected f32"),
        ("a.c:1: INVALID_ARGUMENT; mismatch; expected 1 arguments but passed 0", "0 arguments are given, expected 1"),
        ("<vm>:0: INCOMPATIBLE; HAL device `__device_0` not found", "HAL device `__device_0` not found (INCOMPATIBLE)"),
        ("b.c:7: OUT_OF_RANGE; file is short; while calling", "file is short (OUT_OF_RANGE)"),
        ("archive.c:122: INVALID_ARGUMENT; FlatBuffer length", "these are not the bytes of a compiled program"),
    ],
)  # fmt: skip
def test_first_line(text: str, first: str) -> None:
    ours, _, theirs = explained(text).partition("\n")
    assert ours.startswith(first)
    assert theirs == f"IREE: {text}"


def test_a_kernel_that_fails() -> None:
    """The simulator's finding, of several lines, comes first."""
    assert explained(KERNEL).splitlines()[:2] == [
        "the kernel failed on the simulated gfx950: kernel main",
        "  error[late] reads v2 in flight; workgroup (0, 0, 0), wave 0",
    ]


def test_what_is_no_status() -> None:
    assert explained("something else") == "something else"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (SHAPE, True),
        (KERNEL, False),
        ("mxcomp: dimension 0 of argument 0 and 7 must be equal, for tensor.cast at m.mlir:2:3", True),
        ("mxcomp: a size computed at m.mlir:1:2 and 7 must be equal, for tensor.cast at m.mlir:2:3", False),
        (f"mxcomp: dimension 0 of argument 0 and 7 must be equal, for tensor.cast at m.mlir:2:3{BRANCH}", False),
    ],
)
def test_calls_that_did_nothing(text: str, refused: bool) -> None:
    """For sizes of arguments alone, which are compared first."""
    assert is_refusal(text) == refused
