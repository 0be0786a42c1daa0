"""mxcomp-pack: packs a checkpoint's weights as a compiled program reads them, offline.

mxcomp-compile model.mlir -o model.vmfb --packed-parameters=manifest.json
mxcomp-pack model-*.safetensors --manifest=manifest.json -o packed.irpa
mxcomp-run model.vmfb --parameters=model=packed.irpa --input=…

The archive holds all that the program reads: what it does not read packed is copied. Names of MXFP4 weights may be
those of Quark (layer.weight, layer.weight_scale) or of GPT-OSS (layer_blocks, layer_scales; layer_blocks[3] is of
expert 3), in checkpoint and program alike.
"""

from __future__ import annotations

import sys

from mxcomp.errors import InputError
from mxcomp.support import files
from mxcomp.tools import common
from mxcomp.weights import checkpoint
from mxcomp.weights.checkpoint import Checkpoint
from mxcomp.weights.manifest import FLAG, Manifest

NAME = "mxcomp-pack"


def main(argv: list[str] | None = None) -> int:
    parser = common.described_parser(NAME, __doc__)
    parser.add_argument("input", nargs="+", help=".safetensors, .irpa, .gguf or .npz; together they are a checkpoint")
    parser.add_argument("-o", dest="output", required=True, help="the archive of parameters to write, .irpa")
    parser.add_argument("--manifest", metavar="FILE", help=f"what the program reads: from mxcomp-compile {FLAG}=FILE")
    parser.add_argument("--scope", help="whose parameters to pack, where the program has several scopes")
    args = parser.parse_args(argv)

    def run() -> None:
        if args.manifest is None:
            raise InputError(
                f"which layout? --manifest=FILE says what the program reads: mxcomp-compile {FLAG}=FILE writes it"
            )
        files.check_writable(args.output)
        manifest = Manifest.from_json(files.read(args.manifest), args.manifest)
        checkpoint.save(args.output, checkpoint.pack(manifest, Checkpoint.read(*args.input), args.scope))

    return common.exit_code(NAME, run)


if __name__ == "__main__":
    sys.exit(main())
