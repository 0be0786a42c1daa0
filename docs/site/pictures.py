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
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

import mxcomp
from mxcomp.profiling import Profile
from mxcomp.sim.timing.pictures import png, pyplot

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"
_WIDTH, _LETTERS, _LONGEST = 5.0, 9, 66
"""Inches, for letters as large as text on a phone; their size; how many of a dispatch's name fit above its bar."""


def profile_of(example: Path) -> Profile:
    """What the last program that an example runs, or profiles itself, does. Raises RuntimeError where it runs none."""
    found: list[Profile] = []
    run, profile = mxcomp.Program.run, mxcomp.Program.profile

    def followed(program: mxcomp.Program, *arrays: Any, **settings: Any) -> Any:
        if "profile" not in settings:
            chosen = {name: settings[name] for name in ("function", "parameters") if name in settings}
            program.profile(*arrays, **chosen)
        return run(program, *arrays, **settings)

    def kept(program: mxcomp.Program, *arrays: Any, **settings: Any) -> Profile:
        found.append(profile(program, *arrays, **settings))
        return found[-1]

    with (
        mock.patch.object(mxcomp.Program, "run", followed),
        mock.patch.object(mxcomp.Program, "profile", kept),
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
    known = [(d, d.modelled) for d in profile.called if d.modelled is not None]
    places = range(len(known))
    figure, axes = plt.subplots(figsize=(_WIDTH, 0.9 + 0.48 * len(known)), dpi=200)
    spread = [[m.us - m.low for _, m in known], [m.high - m.us for _, m in known]]
    axes.barh(places, [m.us for _, m in known], 0.4, xerr=spread, color="#4c78a8", ecolor="#9e9e9e")
    for place, (d, _) in zip(places, known, strict=True):
        axes.text(0, place - 0.28, f"{place + 1}  {textwrap.shorten(d.name, _LONGEST)}", fontsize=_LETTERS)
    axes.set(xlabel=f"modelled µs on an MI355X, {profile.modelled_us:.1f} in all; grey: 80 %", title=title)
    axes.set(yticks=[], ylim=(len(known) - 0.6, -0.8))
    return png(plt, figure)


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
