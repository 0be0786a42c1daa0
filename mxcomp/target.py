"""What the passes need to know of a GPU: a frozen description, passed along, never global."""

from __future__ import annotations

from dataclasses import dataclass

from mxcomp.errors import TargetError


@dataclass(frozen=True)
class Target:
    """A GPU architecture.

    Sizes are in bytes. `max_buffer_bytes` bounds every operand and result of one dispatch, because buffer
    instructions take signed 32-bit offsets (CDNA4 ISA, MUBUF addressing).
    """

    arch: str
    subgroup_size: int = 64
    max_workgroup_memory_bytes: int = 160 * 1024
    max_workgroup_threads: int = 1024
    max_buffer_bytes: int = 2**31 - 1

    @property
    def iree_flags(self) -> tuple[str, ...]:
        return ("--iree-hal-target-device=hip", f"--iree-rocm-target={self.arch}")


GFX950 = Target("gfx950")
"""MI350X and MI355X (CDNA4)."""

TARGETS = {target.arch: target for target in (GFX950,)}


def get_target(name: str) -> Target:
    """The target called `name`; raises TargetError for any other architecture."""
    try:
        return TARGETS[name]
    except KeyError:
        known = ", ".join(TARGETS)
        raise TargetError(
            f"unknown target '{name}': expected one of {known} (v_mfma_scale instructions exist on CDNA4 only)"
        ) from None
