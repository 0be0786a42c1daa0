"""Response files: an argument @FILE stands for the arguments in FILE, as LLVM's tools read them.

Arguments are separated by white space. A backslash keeps the next character as it is, also inside of quotes, which are
single or double. Files may name files, from the working directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from mxcomp.errors import InputError


def expanded(arguments: Iterable[str], within: tuple[str, ...] = ()) -> list[str]:
    """Arguments without @FILE; `within` are the files that these are from. Raises InputError."""
    result = []
    for argument in arguments:
        if not argument.startswith("@"):
            result.append(argument)
            continue
        name = argument[1:]
        if name in within:
            raise InputError(f"response file {name} names itself: {' → '.join((*within, name))}")
        result += expanded(tokens(_read(name)), (*within, name))
    return result


def tokens(text: str) -> Iterator[str]:
    """The arguments in a response file. As with LLVM, empty ones are left out, and the end of the text ends a quote."""
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


def _read(name: str) -> str:
    try:
        return Path(name).read_text("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read response file @{name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read response file @{name}: not UTF-8 text ({error.reason})") from None
