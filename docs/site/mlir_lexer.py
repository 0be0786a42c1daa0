"""Colours of MLIR, for code on the site: Pygments has none."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

__all__ = ("MlirLexer",)


class MlirLexer(RegexLexer):
    """Values, symbols, types, operations and attributes, of any dialect."""

    name = "MLIR"
    aliases: ClassVar[list[str]] = ["mlir"]
    filenames: ClassVar[list[str]] = ["*.mlir"]
    tokens: ClassVar[dict[str, list[tuple[str, object]]]] = {
        "root": [
            (r"//.*?$", Comment.Single),
            (r'"(\\.|[^"\\])*"', String),
            (r"%[\w$.\-]+(:\d+)?", Name.Variable),
            (r"\^[\w$.\-]+", Name.Label),
            (r"@[\w$.\-]+", Name.Function),
            (r"[#!][\w$.\-]+", Name.Decorator),
            (r"\b(tensor|memref|vector)(?=<)", Keyword.Type),
            (r"\b(\d+x|\?x)+|(\?x)(\d+x|\?x)*", Number),
            (r"((?<=x)|\b)(bf16|[fi]\d+|index|f[468]E\w+)\b", Keyword.Type),
            (r"-?\b\d+(\.\d+)?(e[+-]?\d+)?\b|\b0x[0-9a-fA-F]+\b", Number),
            (r"\b(ins|outs|to|into|loc|dense|affine_map|true|false|private|public)\b", Keyword),
            (r"\b[a-z_]\w*(\.[\w.]+)+", Name.Builtin),
            (r"->|[=:+*/<>-]", Operator),
            (r"[\[\](){},.]", Punctuation),
            (r"\w+", Name),
            (r"\s+|.", Text),
        ]
    }
