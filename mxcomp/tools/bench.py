"""mxcomp-bench: times scaled matmuls with the fastest of our ukernels, next to a peer's kernels, and whole programs.

mxcomp-bench 10000x16384x16384 64x14336x4096              # the matmul dispatch of each: a table
mxcomp-bench --rows FILE.csv --aiter DIR --json OUT       # m,n,k and perhaps tile_m,tile_n of AITER's kernel
mxcomp-bench --configurations 10000x16384x16384           # every dispatch, with and without data tiling and ukernels,
mxcomp-bench --configurations model.mlir                  #     and stock IREE's own; and AITER's kernel by --aiter
mxcomp-bench --moe FILE.csv --json OUT                    # both grouped matmuls of MoE layers; columns tokens,
                                                          #     model_dim,inter_dim,experts,top_k,a_type,w_type
mxcomp-bench --model llama3-8b --batch 1,16 --context 1024 # a layer of each kind, and the head, without weights; also
                                                          #     of a folder with config.json, and of such a file

Matmuls have their operands packed already, and results of bf16; of configurations operands come as rows, and results
are f32 (or what --result says). A list goes to --json and --csv, pictures into --picture; what --json has from an
earlier run is kept. Times are modelled (docs/timing.md), none is measured; with --device=hip the same programs are
compiled, checked and measured on the GPU. A peer's times are always modelled.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from mxcomp.errors import InputError
from mxcomp.formats import ELEMENT_TYPES
from mxcomp.support import files
from mxcomp.tools import common, shapes

NAME = "mxcomp-bench"


def main(argv: list[str] | None = None) -> int:
    parser = common.described_parser(NAME, __doc__)
    parser.add_argument("subjects", nargs="*", metavar="MxNxK|model.mlir", help="sizes of matmuls, and models")
    parser.add_argument("--configurations", action="store_true", help="every dispatch of programs, compiled in 6 ways")
    parser.add_argument("--rows", type=Path, metavar="FILE.csv", help="more sizes; columns m,n,k,tile_m,tile_n")
    parser.add_argument("--moe", type=Path, metavar="FILE.csv", help="layers of mixtures of experts, without routing")
    parser.add_argument("--model", metavar="NAME|DIR|CONFIG.json", help="a decoder of transformers: llama3-8b, …")
    parser.add_argument("--batch", default="1,16,64", metavar="N,…", help="of --model: sequences (default: 1,16,64)")
    parser.add_argument("--context", default="1024,8192", metavar="N,…", help="of --model: tokens (default: 1024,8192)")
    parser.add_argument("--types", nargs=2, default=["f4E2M1FN"] * 2, metavar=("LHS", "RHS"), choices=ELEMENT_TYPES)
    parser.add_argument("--result", choices=shapes.RESULTS, help="elements of the result (default: bf16, or f32)")
    parser.add_argument("--aiter", type=Path, metavar="DIR", help="a checkout of ROCm/aiter, for the peer's times")
    parser.add_argument("--device", default="sim", choices=("sim", "hip"), help="sim: modelled; hip: measured")
    parser.add_argument("--json", type=Path, metavar="OUT", help="where the list goes")
    parser.add_argument("--csv", type=Path, metavar="OUT", help="the same as a table")
    parser.add_argument("--picture", type=Path, metavar="DIR", help="bars, roofline, speed over size, as .png")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: sim: one for each core, hip: 1)")
    args = parser.parse_args(argv)
    return common.exit_code(NAME, lambda: _bench(args))


def _bench(args: argparse.Namespace) -> int:
    if args.jobs is not None and args.jobs < 1:
        raise InputError(f"--jobs={args.jobs}: expected 1 or more")
    files.check_writable(args.json)
    files.check_writable(args.csv)
    if args.picture:
        from mxcomp.sim.timing import pictures

        pictures.check()
        files.folder(args.picture, "pictures")
    modes = {"models": args.model, "moe": args.moe, "configurations": args.configurations, "matmuls": True}
    mode = next(name for name, is_it in modes.items() if is_it)
    return import_module(f"mxcomp.tools.bench_{mode}").run(NAME, args)  # what each needs takes a while to load


if __name__ == "__main__":
    sys.exit(main())
