"""Settings of the simulator, as the environment says them."""

from __future__ import annotations

import pytest

from mxcomp.hip.settings import Settings
from mxcomp.sim.errors import SimulationError


def test_what_is_said() -> None:
    """Names that are not there, or empty, leave what is usual."""
    assert Settings.of({}) == Settings.of({"MXCOMP_SIM_ENGINE": "", "MXCOMP_SIM_SEED": ""}) == Settings()
    said = {"engine": "numpy", "checks": "race,late", "schedule": "random", "seed": "3", "max_instructions": "1000"}
    found = Settings.of({f"MXCOMP_SIM_{name.upper()}": value for name, value in said.items()})
    assert found == Settings("numpy", ("race", "late"), "random", 3, 1000)
    every, none = (Settings.of({"MXCOMP_SIM_CHECKS": text}).checks for text in ("all", "none"))
    assert every is None and none == ()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ENGINE", "quick", "engine 'quick': expected fast, "),
        ("SCHEDULE", "sideways", "schedule 'sideways': expected "),
        ("SEED", "1.5", "seed '1.5': expected a whole number"),
        ("MAX_INSTRUCTIONS", "1e6", "max_instructions '1e6': expected a whole number"),
        ("CHECKS", "late,luck", "check 'luck': expected .*, all or none"),
        ("DUMP_OPERANDS", "there", "a report of mxcomp-compile is needed to dump operands"),
    ],
)
def test_what_makes_no_sense(name: str, text: str, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        Settings.of({f"MXCOMP_SIM_{name}": text})
