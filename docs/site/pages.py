"""Pages of the documentation site that are made of the code: front page, commands, passes, ukernels, changelog.

`PAGES` has a function for each; `hooks.py` hands them to MkDocs, and the tests look at them without it.
"""

from __future__ import annotations

import argparse
import inspect
import posixpath
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]

COMMANDS = ("compile", "run", "pack", "tune", "bench", "kernel", "opt", "sim", "show")
"""Modules of `mxcomp.tools`, in the order in which one meets them."""

_LINK = re.compile(r"\]\((?!https?:|#|mailto:|%)(?P<path>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
_MOVED = {"ukernels/README.md": "ukernels.md", "CHANGELOG.md": "changelog.md", "README.md": "index.md"}
"""Files outside of docs/ that have a page."""
_FOLDERS = {"passes/": "reference/passes.md", "mxcomp/tools/": "reference/cli.md"}
"""Folders whose modules are described on one page."""


class _Parsed(BaseException):
    """Carries a command's parser out of its `main`."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser that a command makes, just before it would parse."""

    def caught(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        raise _Parsed(parser)

    with mock.patch.object(argparse.ArgumentParser, "parse_known_args", caught):
        try:
            import_module(f"mxcomp.tools.{command}").main([])
        except _Parsed as found:
            return found.parser
    raise RuntimeError(f"mxcomp.tools.{command} has no parser")


def cli() -> str:
    """Every command: what it is for, and its arguments."""
    text = [
        "# Commands\n",
        "Every command ends with exit code 0 when all went well, 1 after an error that it has said on stderr (of "
        "`mxcomp-run`: the program failed, or `--expected_output` differs; of `mxcomp-tune`: something could not be "
        "tuned), 2 for arguments of its own that it cannot read, and 130 after an interrupt.\n",
    ]
    for command in COMMANDS:
        parser = parser_of(command)
        first, _, rest = (parser.description or "").strip().partition("\n")
        text += [f"## {parser.prog}\n", _sentence(first.partition(": ")[2] or first)]
        if rest.strip():
            text.append(f"\n```text\n{inspect.cleandoc(rest)}\n```\n")
        text += ["\n| argument | |\n|---|---|", *map(_row, parser._actions), ""]
    return "\n".join(text)


def _row(action: argparse.Action) -> str:
    metavar = action.metavar if action.metavar is not None else (action.dest.upper() if action.nargs != 0 else "")
    if isinstance(metavar, tuple):
        metavar = " ".join(metavar)
    if action.choices is not None and action.metavar is None:
        metavar = "{" + ",".join(map(str, action.choices)) + "}"
    names = ", ".join(action.option_strings) or (action.metavar or action.dest)
    value = f" {metavar}" if metavar and action.option_strings else ""
    help_text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return f"| `{_cell(names + value)}` | {_cell(help_text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def passes() -> str:
    """Every pass: what it does, and the IR before and after."""
    from mxcomp.passes import PASSES, get_pass
    from mxcomp.pipeline import EXECUTABLE_PASSES, MODULE_PASSES

    pipeline = ",".join((*MODULE_PASSES, *EXECUTABLE_PASSES))
    text = [
        "# Passes\n",
        "By name, those of workarounds behind; `mxcomp/pipeline.py` has the order they run in. In a lit test, all "
        "that run on a program at IREE's phase `input` and at its executables are\n",
        f"```bash\nmxcomp-opt --pass-pipeline='builtin.module({pipeline})'\n```\n",
    ]
    for name, file in PASSES.items():
        docstring = inspect.cleandoc(import_module(f"mxcomp.passes.{file}").__doc__ or "")
        first, _, rest = docstring.partition("\n")
        text += [f"## {name}\n", _sentence(first.removeprefix(f"{name}: "))]
        if options := get_pass(name).options:
            text.append(f"\nOptions: {', '.join(f'`{option}`' for option in options)}.")
        text.append(f"{rest}\n")
    return with_mlir("\n".join(text))


def index() -> str:
    """The README, with its links as they are on the site."""
    return site_links((ROOT / "README.md").read_text())


def ukernels() -> str:
    return site_links((ROOT / "ukernels" / "README.md").read_text(), "ukernels")


def changelog() -> str:
    return site_links((ROOT / "CHANGELOG.md").read_text())


_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$", re.M | re.S)
_COMMAND = re.compile(r" *(#|mxcomp-|iree-|pip |python |git |mkdocs |ruff |lit |[A-Z_]+=\S* )")
"""How a line of a shell begins."""
_BY_NAME = re.compile(r"\[`?(?P<name>[\w/.]+\.md)`?\]\((?P<path>[^)#\s]+\.md)(?P<anchor>#[^)]*)?\)")
"""A link whose text is the name of a file."""


def with_languages(text: str) -> str:
    """Code without a language is commands of a shell where its first line is one, else text as it is."""

    def named(fence: re.Match[str]) -> str:
        language = fence["language"] or ("bash" if _COMMAND.match(fence["code"]) else "text")
        return f"{fence['indent']}```{language}\n{fence['code']}{fence['indent']}```"

    return _FENCE.sub(named, text)


def with_mlir(text: str) -> str:
    """Indented code is MLIR."""
    return _INDENTED.sub(lambda block: f"```mlir\n{inspect.cleandoc(block[0])}\n```\n", text)


_INDENTED = re.compile(r"(?:^ {4}.*\n(?:\n(?= {4}))*)+", re.M)


def with_titles(text: str, page: str, text_of: Callable[[str], str | None]) -> str:
    """Links by the titles of the pages that they lead to, where they are by the names of files."""

    def titled(link: re.Match[str]) -> str:
        found = text_of(posixpath.normpath(posixpath.join(posixpath.dirname(page), link["path"])))
        title = None if found is None else _TITLE.search(found)
        return link[0] if title is None else f"[{title['title']}]({link['path']}{link['anchor'] or ''})"

    return _BY_NAME.sub(titled, text)


_TITLE = re.compile(r"^# (?P<title>.+)$", re.M)

PAGES: Mapping[str, Callable[[], str]] = {
    "index.md": index,
    "ukernels.md": ukernels,
    "changelog.md": changelog,
    "reference/cli.md": cli,
    "reference/passes.md": passes,
}
"""Pages by their place below docs/."""


def page_of(path: str) -> str | None:
    """The page, with an anchor for a pass, of what lies outside of docs/ at `path` in the repository, if it has one."""
    if path in _MOVED:
        return _MOVED[path]
    page = next((page for folder, page in _FOLDERS.items() if path.startswith(folder)), None)
    name = posixpath.basename(path).removesuffix(".py")
    anchor = f"#mxcomp-{name.replace('_', '-')}" if path.endswith(".py") and name != "__init__" else ""
    return None if page is None else page + anchor


def repository_links(text: str, page: str) -> str:
    """Markdown of a page below docs/, whose links out of it lead to the pages of what they name."""
    folder = posixpath.join("docs", posixpath.dirname(page))

    def moved(link: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join(folder, link["path"])) + "/" * link["path"].endswith("/")
        if place.startswith("docs/") or (target := page_of(place)) is None:
            return link[0]
        return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{link['anchor'] or ''})"

    return _LINK.sub(moved, text)


def site_links(text: str, folder: str = "") -> str:
    """Markdown of a file in `folder` of the repository, for a page at the top of the site.

    Links to what has no page become its name.
    """

    def moved(link: re.Match[str]) -> str:
        path = (Path(folder) / link["path"]).as_posix()
        target = _MOVED.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        return f"]({target}{link['anchor'] or ''})" if target else f"](index.md '{path}')"

    return _LINK.sub(moved, text)
