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


def test_the_build_knows_how_licenses_are_named() -> None:
    """An expression with files beside it (PEP 639): setuptools reads it from 77 on, and fails before."""
    (requirement,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    name, _, least = requirement.partition(">=")
    assert name == "setuptools"
    assert int(least.split(".")[0]) >= 77
