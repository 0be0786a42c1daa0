"""Settings of the simulator from the environment, as the driver library passes them on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mxcomp.sim.device import ENGINES, TIMING
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.findings import CHECKS
from mxcomp.sim.schedule import ORDERS, Order

PREFIX = "MXCOMP_SIM_"


@dataclass(frozen=True)
class Settings:
    """Settings of launches; see `mxcomp.sim.Device`.

    Attributes:
        max_instructions: Wave instructions of a workgroup before it counts as an endless loop.
        profile: A file that gets one line of JSON per launch.
        asked: Numbers of launches, ascending: only these are profiled, and nothing is executed from the last one on.
            Empty: all.
        timeline: A directory that gets a trace of a compute unit for each launch.
        dump_operands, report: A directory that gets the operands of matmuls, and the report that tells where they are.
    """

    engine: str = "fast"
    checks: tuple[str, ...] | None = None
    schedule: Order = "forward"
    seed: int = 0
    max_instructions: int = 200_000_000
    profile: str | None = None
    asked: tuple[int, ...] = ()
    timeline: str | None = None
    dump_operands: str | None = None
    report: str | None = None

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Settings:
        """Returns settings from MXCOMP_SIM_ENGINE, _CHECKS and so on, named like the fields. Raises SimulationError."""
        given = {name: variables.get(PREFIX + name.upper()) or None for name in cls.__dataclass_fields__}
        engine, order = given["engine"] or "fast", given["schedule"] or "forward"
        if engine not in ENGINES:
            raise SimulationError(f"engine '{engine}': expected {', '.join(ENGINES)}")
        if order not in ORDERS:
            raise SimulationError(f"schedule '{order}': expected {', '.join(ORDERS)}")
        seed = _whole_number("seed", given["seed"], cls.seed)
        most = _whole_number("max_instructions", given["max_instructions"], cls.max_instructions)
        if given["dump_operands"] and not given["report"]:
            raise SimulationError("a report of mxcomp-compile is needed to dump operands")
        asked = tuple(_whole_number("asked", number, 0) for number in (given["asked"] or "").split(",") if number)
        files = {name: given[name] for name in ("profile", "timeline", "dump_operands", "report")}
        return cls(engine, _checks(given["checks"]), order, seed, most, asked=asked, **files)

    @property
    def computes_less(self) -> bool:
        """Returns whether there are launches that are not executed."""
        return self.engine == TIMING or bool(self.asked)

    def skips(self, launch: int) -> bool:
        """Returns whether nothing is to be done for a launch."""
        return bool(self.asked) and launch > self.asked[-1]

    def times(self, launch: int) -> bool:
        """Returns whether a launch's time is modelled."""
        return bool(self.profile or self.timeline) and (not self.asked or launch in self.asked)

    def executes(self, launch: int) -> bool:
        """Returns whether a launch is executed even if its time is modelled."""
        return self.engine != TIMING and launch not in self.asked[-1:]


def _whole_number(name: str, text: str | None, default: int) -> int:
    try:
        return int(text or default)
    except ValueError:
        raise SimulationError(f"{name} '{text}': expected a whole number") from None


def _checks(text: str | None) -> tuple[str, ...] | None:
    """Returns names of checks from a list with commas, "all" or "none"; None: all."""
    if text is None or text == "all":
        return None
    names = () if text == "none" else tuple(name for name in text.split(",") if name)
    if unknown := set(names) - set(CHECKS):
        raise SimulationError(f"check '{unknown.pop()}': expected {', '.join(CHECKS)}, all or none")
    return names
