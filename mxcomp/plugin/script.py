"""Writes a shell script that calls a stock iree-compile with a plugin's files, wherever its directory is.

A response file holds names of files as iree-compile would open them from where it is called, so that a directory named
in it stays where it is. The script finds its own directory out instead.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from mxcomp.plugin.response_file import LINK, MATCH, spec_flags

SCRIPT = "compile.sh"

_DIRECTORY = "@directory@"
_PATH = '"$directory"'
"""The shell expression for the directory, which replaces `_DIRECTORY` in flags between the quotes around it."""

_TEMPLATE = """\
#!/bin/sh
# sh {script} model.mlir -o model.vmfb: stock iree-compile with the files beside this one, wherever they are moved to.
# IREE_COMPILE names another iree-compile than the one on PATH.
directory=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit 1
case $directory in
*[\\"{{}}]*) echo "{script}: iree-compile cannot read a path with quotes or braces: $directory" >&2; exit 2 ;;
esac
exec "${{IREE_COMPILE:-iree-compile}}" {flags} "$@"
"""


def script(flags: Sequence[str], is_linked: bool) -> str:
    """Returns the script, with `flags` before the plugin's own; `is_linked`: there is a LINK."""
    match, link = spec_flags(f"{_DIRECTORY}/{MATCH}", f'"{_DIRECTORY}/{LINK}"')
    own = (match, link) if is_linked else (match,)
    return _TEMPLATE.format(script=SCRIPT, flags=" ".join(map(_word, (*flags, *own))))


def _word(flag: str) -> str:
    """Quotes a flag as one word of a shell; the parts around the directory's name are quoted each by itself."""
    return _PATH.join(shlex.quote(part) if part else "" for part in flag.split(_DIRECTORY))
