"""Draws the pictures of the gallery: what each dispatch of the examples takes on an MI355X, modelled.

    python docs/site/pictures.py            # docs/gallery/NN_name.png for each example
    python docs/site/pictures.py 01 03      # of these alone

Runs each example as it stands, follows every program that it calls, and draws the last one. Needs the extras "plot"
and, for some examples, "checkpoint" and "torch"; 06 needs transformers.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import mxcomp
from mxcomp.profiling import Profile
from mxcomp.sim.timing.pictures import png, pyplot

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"
_LONGEST = 60
"""Letters of a dispatch's name."""


def profile_of(example: Path) -> Profile:
    """What the last program that an example runs does. Raises RuntimeError where it runs none."""
    found: list[Profile] = []
    run = mxcomp.Program.run

    def followed(program: mxcomp.Program, *arrays: Any, **settings: Any) -> Any:
        if "profile" not in settings:
            chosen = {name: settings[name] for name in ("function", "parameters") if name in settings}
            found.append(program.profile(*arrays, execute=False, **chosen))
        return run(program, *arrays, **settings)

    with (
        mock.patch.object(mxcomp.Program, "run", followed),
        mock.patch.object(sys, "argv", [str(example)]),
        contextlib.redirect_stdout(sys.stderr),
        contextlib.suppress(SystemExit),
    ):
        runpy.run_path(str(example), run_name="__main__")
    if not found:
        raise RuntimeError(f"{example.name} runs no program")
    return found[-1]


def picture(title: str, profile: Profile) -> bytes:
    """A bar for each dispatch, with the interval of its estimate."""
    plt = pyplot()
    known = [(d, d.modelled) for d in profile.dispatches if d.modelled is not None]
    names = [f"{place + 1}  {_label(d.kernel, d.owner)}" for place, (d, _) in enumerate(known)]
    figure, axes = plt.subplots(figsize=(10, 0.8 + 0.42 * len(known)), dpi=110)
    spread = [[m.us - m.low for _, m in known], [m.high - m.us for _, m in known]]
    axes.barh(names, [m.us for _, m in known], xerr=spread, color="#4c78a8", ecolor="#9e9e9e")
    axes.invert_yaxis()
    axes.set(xlabel=f"modelled µs on an MI355X, {profile.modelled_us:.1f} in all; grey: 80 %", title=title)
    return png(plt, figure)


def _label(kernel: str, owner: str) -> str:
    part = owner.partition("\n")[0].rpartition(" of ")[0]
    return (part or kernel)[:_LONGEST]


def main() -> None:
    GALLERY.mkdir(exist_ok=True)
    os.environ.setdefault("COLUMNS", "140")
    wanted = tuple(sys.argv[1:]) or ("",)
    for example in sorted((ROOT / "examples").glob("[0-9]*.py")):
        if not example.name.startswith(wanted):
            continue
        data = picture(example.stem, profile_of(example))
        (GALLERY / f"{example.stem}.png").write_bytes(data)
        print(f"docs/gallery/{example.stem}.png")


if __name__ == "__main__":
    main()
