"""Writes a program's code object and its manifest, by default those kept beside this file for the mutation test.

    python test/sim/corpus/iree/make_iree.py [COMPILER M N K [FOLDER]]

COMPILER is a name in `corpus.iree.COMPILERS`. The manifest lists buffers, arguments first, and dispatches
in order: kernel, workgroups, constants, and the parts of buffers that its pointers stand for.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
FROZEN = ("m64_n128_k512", 64, 128, 2048)


def main() -> None:
    sys.path.insert(0, str(HERE.parent.parent))
    from corpus.iree import COMPILERS, scaled_matmul

    name, *sizes = sys.argv[1:5] or FROZEN
    folder = Path(sys.argv[5]) if len(sys.argv) > 5 else HERE
    program = COMPILERS[name](scaled_matmul(*map(int, sizes)))
    program.save(folder / f"{name}.json")


if __name__ == "__main__":
    main()
