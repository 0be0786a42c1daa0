"""Response files: an argument @FILE stands for the arguments in FILE, as LLVM's tools read them.

Arguments are separated by white space. A backslash keeps the next character as it is, also inside of quotes, which are
single or double. Files may name files, from the working directory, to a depth and a size in all that are bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from mxcomp.errors import InputError

DEPTH = 32
"""The largest depth of files within files."""
MOST = 1 << 24
"""The largest number of characters of all files that are read, each as often as it is named: more than a command line
may have."""

_LEAST = 1 << 10
"""The number of characters that a file counts at least."""


def expanded(arguments: Iterable[str]) -> list[str]:
    """Returns arguments with each @FILE expanded. Raises InputError."""
    return _expanded(arguments, (), _Room())


def _expanded(arguments: Iterable[str], within: tuple[str, ...], room: _Room) -> list[str]:
    """Expands arguments; `within` are the files that they are from."""
    result = []
    for argument in arguments:
        if not argument.startswith("@"):
            result.append(argument)
            continue
        name = argument[1:]
        if name in within:
            raise InputError(f"response file {name} names itself: {' → '.join((*within, name))}")
        if len(within) == DEPTH:
            raise InputError(
                f"response file {within[-1]} names {name}: expected at most {DEPTH} files within each other"
            )
        result += _expanded(tokens(room.read(name)), (*within, name), room)
    return result


class _Room:
    """The remaining part of `MOST`."""

    def __init__(self) -> None:
        self._left = MOST

    def read(self, name: str) -> str:
        """Returns a file's text. Raises InputError for one that cannot be read, or with which all are too long."""
        text = _read(name, self._left)
        self._left -= max(len(text), _LEAST)
        return text


def tokens(text: str) -> Iterator[str]:
    """Returns the arguments in a response file. As with LLVM, empty ones are left out, and the end of the text ends a
    quote."""
    token, quote = "", ""
    chars = iter(text)
    for char in chars:
        if char == "\\":
            token += next(chars, char)
        elif quote:
            quote, token = ("", token) if char == quote else (quote, token + char)
        elif char in "\"'":
            quote = char
        elif char not in " \t\r\n":
            token += char
        elif token:
            yield token
            token = ""
    if token:
        yield token


def _read(name: str, most: int) -> str:
    """Reads a limited number of characters, as something without an end, such as a device, may be named."""
    try:
        with Path(name).open(encoding="utf-8-sig") as file:
            text = file.read(most + 1)
    except OSError as error:
        raise InputError(f"cannot read response file @{name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read response file @{name}: not UTF-8 text ({error.reason})") from None
    if "\0" in text:
        raise InputError(f"response file {name}: no argument may have a NUL, as this file does")
    if len(text) > most:
        raise InputError(f"response file {name}: with it, files have more than {MOST} characters")
    return text
