"""Hooks of MkDocs: pages that are made of the code (`pages.py`), colours of MLIR and other code, titles of links."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments.lexers import LEXERS

sys.path.insert(0, str(Path(__file__).parent))

import mlir_lexer
from pages import PAGES, repository_links, with_languages, with_titles

LEXERS["MlirLexer"] = (mlir_lexer.__name__, "MLIR", ("mlir",), ("*.mlir",), ())


def on_files(files: Files, config: Any) -> Files:
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Code gets a language, links out of docs/ lead to pages, and those by a file's name have the title of its page."""

    def text_of(path: str) -> str | None:
        file = files.get_file_from_path(path)
        return None if file is None or not path.endswith(".md") else file.content_string

    path = page.file.src_uri
    return with_languages(with_titles(repository_links(markdown, path), path, text_of))
