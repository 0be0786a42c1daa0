"""Response files DEEP0, DEEP1 … and WIDE0, WIDE1 …, each of which names the next, or names it 16 times."""

from __future__ import annotations

import sys
from pathlib import Path

deep, wide = sys.argv[1:]
for i in range(64):
    Path(f"{deep}{i}").write_text(f"@{deep}{i + 1}")
for i in range(16):
    Path(f"{wide}{i}").write_text("\n".join([f"@{wide}{i + 1}"] * 16))
Path(f"{wide}16").write_text("--strict")
