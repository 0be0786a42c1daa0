"""Code that the command-line tools share: options, version, exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from statistics import geometric_mean

from mxcomp.errors import InputError, MxcompError
from mxcomp.options import AUTO, FASTEST, Options
from mxcomp.support.version import __version__
from mxcomp.target import DEFAULT


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Returns an argument parser with the options every tool takes."""
    result = argparse.ArgumentParser(prog=name, description=description, allow_abbrev=False)
    result.add_argument("input", nargs="?", default="-", help="MLIR file, - for stdin (default)")
    result.add_argument("-o", dest="output", default="-", help="output file, - for stdout (default)")
    result.add_argument("--target", default=DEFAULT, help="the GPU (default: %(default)s)")
    result.add_argument("--data-tiling", default="on", metavar="{on,off}", help="pack operands (default: on)")
    result.add_argument(
        "--ukernels",
        default=FASTEST,
        metavar="{fastest,benefit,none,NAME}",
        help="which ukernels to use; fastest (default): by modelled time; benefit: by what they say they are for",
    )
    result.add_argument(
        "--versions", default="on", metavar="{on,off}", help="kernels by ranges of a dynamic M (default: on)"
    )
    result.add_argument(
        "--fuse-quantisers",
        default=AUTO,
        metavar="{auto,on,off}",
        help="quantise in matmuls' dispatches; auto (default): where that is modelled to be faster",
    )
    result.add_argument("--tuned", metavar="FILE.csv", help="ukernels that a table of mxcomp-tune says come first")
    result.add_argument("--ukernel-dir", action="append", default=[], metavar="DIR", help="more ukernels; repeatable")
    result.add_argument("--strict", action="store_true", help="an error where a slower program could be compiled")
    iree = metadata.version("iree-base-compiler")
    result.add_argument("--version", action="version", version=f"{name} {__version__} (IREE {iree})")
    return result


def described_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Returns an argument parser of a tool that is described at length, with --version."""
    how = argparse.RawDescriptionHelpFormatter
    result = argparse.ArgumentParser(name, description=description, formatter_class=how, allow_abbrev=False)
    result.add_argument("--version", action="version", version=f"{name} {__version__}")
    return result


def options(args: argparse.Namespace) -> Options:
    return Options.make(
        args.target,
        args.data_tiling,
        args.ukernels,
        tuple(args.ukernel_dir),
        tuned=args.tuned,
        versions=args.versions,
        fuse_quantisers=args.fuse_quantisers,
        strict=args.strict,
    )


def check_modelled(args: argparse.Namespace, mode: str, what: str, unused: Sequence[str], used: str) -> None:
    """Raises InputError for arguments that do not go with a mode of mxcomp-bench in which nothing is measured."""
    if args.device != "sim":
        raise InputError(f"{mode} with --device=hip: {what} are modelled only, expected --device=sim")
    if given := [name for name in unused if getattr(args, name)]:
        shown = ", ".join(name if name == "subjects" else f"--{name}" for name in given)
        raise InputError(f"{mode} with {shown}: expected {used} only")


def system_error(error: OSError) -> str:
    """Returns the system's message, with the file."""
    files = " → ".join(str(file) for file in (error.filename, error.filename2) if file is not None)
    return f"{files}: {error.strerror}" if files and error.strerror else error.strerror or str(error)


def exit_code(name: str, run: Callable[[], int | None]) -> int:
    """Runs a tool, and returns its exit code. That is its result or 0, 1 with the error on stderr, or 130 after an
    interrupt.

    (argparse exits with 2 where it cannot read the command line.)
    """
    try:
        code = run() or 0
        sys.stdout.flush()  # here a full disk is an error, and not a message of Python's behind the end
        return code
    except MxcompError as error:
        message = str(error)
    except BrokenPipeError:
        _drop_stdout()
        return 1
    except OSError as error:  # a disk that fills up, a directory that goes away: what was not known before the work
        _drop_stdout()
        message = system_error(error)
    except MemoryError as error:
        message = f"not enough memory{f': {error}' if str(error) else ''}"
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    print(f"{name}: error: {message}", file=sys.stderr)
    return 1


def _drop_stdout() -> None:
    """Discards stdout, as flushing the rest of its buffer would fail again when Python ends."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with suppress(OSError, ValueError):  # of tests, where it is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def compared(ratios: Sequence[float], speed: str) -> str:
    """Returns a comparison of peers' times with ours in words."""
    least = sum(ratio >= 1 for ratio in ratios) / len(ratios)
    mean = f"{geometric_mean(ratios):.2f} × {speed} (geometric mean)"
    return f"{mean}, at least as fast in {least:.0%}, {min(ratios):.2f} × at worst"
