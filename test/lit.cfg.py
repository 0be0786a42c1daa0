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

IREES = ("iree-opt", "iree-compile", "iree-dump-module", "iree-dump-parameters")

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
work = Path(config.test_exec_root)
client = tool_server.client(work / "client")
commands = {tool: [programs / tool] for tool in IREES}
for name, tools in (("tools", tool_server.TOOLS), ("checker", tool_server.CHECKER)):
    atexit.register(tool_server.start(work / name, tools).kill)
    commands |= {tool: [client, work / name, tool] for tool in tools}
for tool, command in commands.items():
    if not (programs / tool).exists():
        lit_config.fatal(f"{tool} is not installed beside {sys.executable}: pip install -e .[test]")
    config.substitutions.append((rf"(?<![\w./-]){tool}(?![\w./-])", shlex.join(map(str, command))))
config.substitutions.append(("%python", sys.executable))

# Parts of the extra "test"; whoever runs lit alone may do without.
config.available_features |= {name for name in ("torch", "transformers") if importlib.util.find_spec(name)}
