"""Configuration of the lit tests: `lit test` in the repository's root, or through pytest (see conftest.py)."""

# ruff: noqa: F821 (lit defines config and lit_config)

import atexit
import importlib.util
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import lit.formats

sys.path.append(str(Path(__file__).parent))
import tool_server

TOOLS = (
    *tool_server.TOOLS, "iree-opt", "iree-compile", "iree-dump-module", "iree-dump-parameters",
)  # fmt: skip

config.name = "mxcomp"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.excludes = ["inputs"]  # files that tests read
config.test_source_root = str(Path(__file__).parent)

# The tools are those of this tree, whichever one is installed.
config.environment["PYTHONPATH"] = str(Path(__file__).parent.parent)

config.environment["MXCOMP_STRICT"] = "1"  # a pass that fails is to be seen

# Where %t is: a directory of this run, so that several runs do not meet.
config.test_exec_root = tempfile.mkdtemp(prefix="mxcomp-lit-")
atexit.register(shutil.rmtree, config.test_exec_root, ignore_errors=True)

# The tools of the Python environment that lit runs in, wherever PATH points.
programs = Path(sys.executable).parent
server, in_server = tool_server.start(str(Path(config.test_exec_root, "server.socket")))
atexit.register(server.kill)
for tool in TOOLS:
    if not (programs / tool).exists():
        lit_config.fatal(f"{tool} is not installed beside {sys.executable}: pip install -e .[test]")
    command = shlex.join([*in_server, tool]) if tool in tool_server.TOOLS else str(programs / tool)
    config.substitutions.append((rf"(?<![\w./-]){tool}(?![\w./-])", command))
config.substitutions.append(("%python", sys.executable))

# Parts of the extra "test"; whoever runs lit alone may do without.
config.available_features |= {name for name in ("torch", "transformers") if importlib.util.find_spec(name)}
