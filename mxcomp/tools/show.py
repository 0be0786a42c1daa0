"""mxcomp-show: shows the numbers in a file of MX data: fp4, fp6, fp8 elements, with their scales or without.

mxcomp-show a.npy --type=f4E2M1FN --scales=a_scales.npy
mxcomp-show a_scales.npy --type=f8E8M0FNU
mxcomp-show a.npy --type=f6E2M3FN --scales=a_scales.npy -o a_f32.npy

Files are .npy arrays of bytes: [..., bytes] without gaps, the first element in the lowest bits, and [..., K/32].
"""

from __future__ import annotations

import sys

from mxcomp.errors import InputError
from mxcomp.layout.logical import TYPES, numbers
from mxcomp.run.arrays import npy_bytes, read_npy
from mxcomp.support import files
from mxcomp.tools import common
from mxcomp.tools.outputs import text

NAME = "mxcomp-show"


def main(argv: list[str] | None = None) -> int:
    parser = common.described_parser(NAME, __doc__)
    parser.add_argument("input", help=".npy file of bytes")
    parser.add_argument("--type", required=True, metavar="TYPE", help=f"of an element: {', '.join(TYPES)}")
    parser.add_argument("--scales", metavar="FILE", help=".npy file of E8M0 scales to multiply with")
    parser.add_argument("-o", dest="output", metavar="FILE", help="write float32 numbers to a .npy file")
    args = parser.parse_args(argv)

    def run() -> None:
        try:
            values = numbers(read_npy(args.input), args.type, None if args.scales is None else read_npy(args.scales))
        except ValueError as error:
            raise InputError(f"{args.input}: {error}") from None
        if args.output is None:
            print(text(values))
            return
        files.write({args.output: npy_bytes(values)})

    return common.exit_code(NAME, run)


if __name__ == "__main__":
    sys.exit(main())
