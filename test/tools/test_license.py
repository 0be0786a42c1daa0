"""What pyproject.toml says of the license is in the tree, and so in every wheel."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_license_is_the_one_that_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (name,) = project["license-files"]
    text = (ROOT / name).read_text()
    assert project["license"] == "Apache-2.0"
    assert "Apache License\n" in text and "Version 2.0, January 2004\n" in text
    assert "END OF TERMS AND CONDITIONS" in text
