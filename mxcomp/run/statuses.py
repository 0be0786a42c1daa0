"""Explains errors of IREE's runtime by a line in front of them.

A status has the place in IREE's sources, a code, and what every layer added; the part that its reader can do something
about stands somewhere in the middle.
"""

from __future__ import annotations

import re

_PARAMETERS = "mxcomp-pack writes what a program's manifest lists"

_OF_ARGUMENTS = (
    (r"input(?P<index>\d+) shape dimension.*expected shape `(?P<one>.*?)`, actual shape `(?P<two>.*?)`",
     "argument {index} has the shape {two}, expected {one}"),
    (r"input(?P<index>\d+) .*rank mismatch; expected (?P<one>\d+).*? but have (?P<two>\d+)",
     "argument {index} has {two} dimensions, expected {one}"),
    (r"input(?P<index>\d+) element type mismatch; expected (?P<one>\w+).* but have (?P<two>\w+)",
     "argument {index} has the element type {two}, expected {one}"),
    (r"expected (?P<one>\d+) arguments but passed (?P<two>\d+)", "{two} arguments are given, expected {one}"),
    (r"could not map dtype dtype\('(?P<dtype>.+?)'\)", "an argument is an array of {dtype}, which no type of MLIR is"),
)  # fmt: skip
_MEANINGS = (
    (r"'io_parameters' not registered", "it reads parameters, and none are given"),
    (r"no parameter found.*?key (?P<key>'.*?')", f"a parameter is not in its file ({_PARAMETERS}): {{key}}"),
    (r"HIP driver error '\w+' \(\d+\): (?P<what>the .+?)(?:; (?:while|hip)|$)", "{what}"),
    *_OF_ARGUMENTS,
    (r"HAL device `\w+` not found or unavailable", "the program is for another device than this one"),
    (r"FlatBuffer|archive\.c|flatcc", "these are not the bytes of a compiled program, or not all of them"),
    (r"bytecode version|version mismatch", "the program was compiled by another version of IREE than the one here"),
    (r"RESOURCE_EXHAUSTED", "there is not enough memory"),
)  # fmt: skip
"""Patterns of IREE's texts, and the explanation of the first one that matches."""

_CODE = re.compile(r": (?P<code>[A-Z_]{6,}); (?P<text>[^;]*)")

_PLACES = re.compile(r"mxcomp: rows must be written to places[^;]+, for (?P<place>[^;]+)")
_SIZES_DIFFER = re.compile(r"mxcomp: (?P<sizes>[^;]+) must be equal, for (?P<place>[^;]+)")


def is_refusal(text: str) -> bool:
    """Returns whether a call was rejected for its arguments, before it changed its device or globals.

    Sizes of arguments are compared first (mxcomp-check-sizes), others where they are computed or needed. So are places
    that rows of caches are written to (mxcomp-check-places).
    """
    if found := _PLACES.search(text):
        return not found["place"].endswith(LATE)
    if found := _SIZES_DIFFER.search(text):
        return "computed" not in found["sizes"] and not found["place"].endswith(BRANCH)
    return any(re.search(pattern, text, re.S) for pattern, _ in _OF_ARGUMENTS)


LATE = ", after other work"
"""The end of the message of a check of places that is not at the beginning of a program."""

BRANCH = ", in a branch, a loop or a call"
"""The end of the message of a comparison of sizes that is not at the beginning of a program."""


def explained(text: str) -> str:
    """Returns a line of explanation, and IREE's text below it.

        argument 0 has the shape 5, expected 4
        IREE: Error invoking function: c/runtime/src/iree/modules/hal/…

    What no pattern knows gets its status code and the first part of the text.
    """
    for pattern, meaning in _MEANINGS:
        if found := re.search(pattern, text, re.S):
            return f"{meaning.format(**found.groupdict())}\nIREE: {text}"
    if found := _CODE.search(text):
        return f"{found['text'].strip()} ({found['code']})\nIREE: {text}"
    return text
