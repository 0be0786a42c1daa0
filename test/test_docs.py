"""The documentation: links lead somewhere, pages are in the navigation, snippets run, and the site builds."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import mxcomp

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
WRITTEN = {path.relative_to(DOCS).as_posix(): path.read_text() for path in DOCS.rglob("*.md")}
LINK = re.compile(r"\]\((?!https?:|mailto:|%)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?(?:\s+'[^']*')?\)")
NAVIGATION = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)


def load(name: str) -> ModuleType:
    """A script of docs/site."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "site" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site() -> dict[str, str]:
    """All pages by their place, as they are on the site, those made of the code as well."""
    pages = load("pages")
    written = {path: pages.repository_links(text, path) for path, text in WRITTEN.items()}
    return written | {path: make() for path, make in pages.PAGES.items()}


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^( *)```.*?^\1```", "", text, flags=re.M | re.S))


def links(text: str) -> Iterator[tuple[str, str | None]]:
    yield from ((link["path"], link["anchor"]) for link in LINK.finditer(without_code(text)))


@pytest.mark.parametrize(
    "file", ["README.md", "CHANGELOG.md", "ukernels/README.md", *(f"docs/{path}" for path in WRITTEN)]
)
def test_links_in_the_repository(file: str) -> None:
    path = ROOT / file
    for target, _ in links(path.read_text()):
        assert not target or (path.parent / target).exists(), f"{file}: {target}"


def test_links_on_the_site(site: dict[str, str]) -> None:
    for page, text in site.items():
        for target, _ in links(text):
            place = os.path.normpath(Path(page).parent / target)
            assert not target or place in site or (DOCS / place).is_file(), f"{page}: {target}"


def test_every_page_is_in_the_navigation(site: dict[str, str]) -> None:
    assert sorted(NAVIGATION) == sorted(site)


def test_every_argument_of_every_command(site: dict[str, str]) -> None:
    pages = load("pages")
    commands = {path.stem for path in (ROOT / "mxcomp" / "tools").glob("*.py") if "def main(" in path.read_text()}
    assert set(pages.COMMANDS) == commands
    for command in commands:
        parser = pages.parser_of(command)
        assert f"## {parser.prog}\n" in site["reference/cli.md"]
        for action in parser._actions:
            for flag in action.option_strings:
                assert f"{flag}" in site["reference/cli.md"]
    assert "%(" not in site["reference/cli.md"]


def test_every_pass_has_ir_before_and_after(site: dict[str, str]) -> None:
    from mxcomp.passes import PASSES

    for name in PASSES:
        section = site["reference/passes.md"].partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert re.search(r"^```mlir\n\S", section, re.M), name


def test_the_picture_of_the_pipeline_has_its_passes_in_their_order() -> None:
    from mxcomp import pipeline

    picture = (DOCS / "pipeline.svg").read_text()
    shown = [f"mxcomp-{name.replace(' ', '-')}" for name in re.findall(r'<text class="pass\b[^>]*>([^<]+)<', picture)]
    order = [name for name in vars(pipeline) if name.endswith("_PASSES") and name != "MODULE_PASSES"]
    passes = iter([name for stage in order for name in getattr(pipeline, stage)])
    assert len(shown) > 10 and all(name in passes for name in shown), shown


def test_what_is_read_first_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 9000
    assert len(WRITTEN["glossary.md"].splitlines()) <= 40
    for release in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]:
        assert len(release.splitlines()) <= 60


def test_every_example_is_in_the_gallery() -> None:
    for example in (ROOT / "examples").glob("[0-9]*.py"):
        assert f"examples/{example.name}" in WRITTEN["gallery.md"]
        assert f"(gallery/{example.stem}.png)" in WRITTEN["gallery.md"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: every warning is an error, a link that leads nowhere among them."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", folder]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_api_is_by_public_names(built: Path) -> None:
    """With every argument of compile listed, and what it is."""
    page = (built / "reference" / "api" / "index.html").read_text()
    for name in ("compile", "Program", "verify"):
        assert re.search(rf"<h3[^>]*>.*?mxcomp\.{name}.*?</h3>", page, re.S), name
    assert "mxcomp.compiler.compile</" not in page
    section = page.partition('id="mxcomp.compiler.compile"')[2].partition('id="mxcomp.compiler.Program"')[0]
    for name in inspect.signature(mxcomp.compile).parameters:
        assert f"<code>{name}</code>" in section.replace("\n", ""), name


EXTERNAL = re.compile(
    r"<(?:script|img|iframe|source)[^>]*?src=[\"']?(?:https?:)?//"
    r"|<link(?=[^>]*rel=[\"']?(?:stylesheet|icon|preload|preconnect))[^>]*?href=[\"']?(?:https?:)?//"
)


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(built: Path) -> None:
    """No script, font, style or picture; Material would fetch what draws diagrams of this class."""
    for page in built.rglob("*.html"):
        text = page.read_text()
        assert not EXTERNAL.search(text), page
        assert 'class="mermaid"' not in text, page
    for style in built.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text()), style
    assert EXTERNAL.search('<link href="//fonts.example/a.css" rel="stylesheet">')
    assert EXTERNAL.search('<script async src="https://unpkg.com/mermaid"></script>')


@pytest.mark.slow
def test_code_has_colours(built: Path) -> None:
    """Python, commands of a shell, and MLIR, which Pygments does not know."""
    for page, code in (
        ("index.html", '<span class="nv">%zeros</span>'),
        ("index.html", '<span class="kn">import</span>'),
        ("reference/passes/index.html", '<span class="nf">@'),
    ):
        assert code in (built / page).read_text(), (page, code)
    assert 'class="language-bash' in (built / "start" / "index.html").read_text()


def test_languages_of_code() -> None:
    pages = load("pages")
    text = "```\nmxcomp-run m.vmfb\n```\n\n```python\nx = 1\n```\nnot code\n```\n│ a │\n```\n"
    assert re.findall("```(.*)", pages.with_languages(text)) == ["bash", "", "python", "", "text", ""]
    assert pages.with_mlir("a\n\n    %0 = x\n\n    %1 = y\nb\n") == "a\n\n```mlir\n%0 = x\n\n%1 = y\n```\nb\n"


def test_links_by_title() -> None:
    pages = load("pages")
    known = {"timing.md": "# Modelled time\n\n# Other\n", "howto/report.md": "no title"}
    for given, shown in (
        ("[docs/timing.md](timing.md#a)", "[Modelled time](timing.md#a)"),
        ("[timing.md](../timing.md)", "[Modelled time](../timing.md)"),
        ("[`timing.md`](../timing.md)", "[Modelled time](../timing.md)"),
        ("[the model](../timing.md)", "[the model](../timing.md)"),
        ("[report.md](report.md)", "[report.md](report.md)"),
        ("[gone.md](gone.md)", "[gone.md](gone.md)"),
    ):
        page = "howto/report.md" if "../" in given else "howto.md"
        assert pages.with_titles(given, page, known.get) == shown


def test_examples_are_read_at_the_width_of_a_page(site: dict[str, str]) -> None:
    """What commands print, on pages that were written: no wider than a terminal of 80 columns."""
    for page in ("start.md", "howto/report.md"):
        for block in re.findall(r"^```text\n(.*?)^```", site[page], re.M | re.S):
            assert max(map(len, block.splitlines())) <= 110, page
