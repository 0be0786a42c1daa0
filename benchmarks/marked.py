"""Tables in documents, between marks that are comments."""

from __future__ import annotations


def put(text: str, begin: str, end: str, table: str) -> str:
    """A document with another table between its marks. Raises AssertionError where it has no such marks."""
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    assert found and closed, f"no marks of {begin.removeprefix('<!-- ')}"
    return f"{before}{begin}\n{table}\n{end}{after}"
