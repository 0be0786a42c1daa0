"""Flags of iree-compile's main program: which they are, and values that make no sense."""

from __future__ import annotations

import pytest

from mxcomp.errors import InputError
from mxcomp.mlir.driver import DriverFlags, split


def test_flags_are_told_apart() -> None:
    """With one dash or two, a value behind "=" or as the next argument; the last one counts."""
    own, others = split(["-verify=false", "--compile-from", "input", "--iree-opt-level=O2", "---verify", "--verify"])
    assert own == ("--verify=false", "--compile-from=input", "--verify")
    assert others == ("--iree-opt-level=O2", "---verify")
    found = DriverFlags.of(own)
    assert (found.verify, found.compile_from) == (True, "input")
    assert DriverFlags.of(own[:1]).verify is False


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--verify=perhaps", "--verify=perhaps: expected true or false"),
        ("--emit-mlir-bytecode-version=new", "--emit-mlir-bytecode-version=new: expected an integer"),
        ("--output-format=elf", "--output-format=elf: expected one of vm-bytecode, "),
        ("--compile-from=flow", "--compile-from=flow: expected start or input, "),
        ("--compile-mode=fast", "--compile-mode=fast: expected one of std, "),
        ("--compile-mode=vm", "--compile-mode=vm: expected std, "),
    ],
)
def test_values_that_make_no_sense(flag: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        DriverFlags.of([flag])


def test_a_value_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"^--output-format: expected a value, --output-format=…"):
        split(["--output-format"])
