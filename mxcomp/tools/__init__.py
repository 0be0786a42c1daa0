"""The command-line tools. Without the IREE that they need, importing one ends with a message and exit code 1."""

from __future__ import annotations

import sys
from pathlib import Path

from mxcomp.errors import InputError
from mxcomp.support import iree_versions

try:
    iree_versions.check()
except InputError as error:
    name = Path(sys.argv[0]).name
    sys.exit(f"{name if name.startswith('mxcomp') else 'mxcomp'}: error: {error}")
