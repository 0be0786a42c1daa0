"""What the whole compiler needs of MLIR and IREE: building and reading IR, attributes, and sessions of IREE."""

from mxcomp.support import iree_versions

iree_versions.check()  # before anything of IREE is imported that another version may lack

from mxcomp.mlir import dialects  # noqa: E402

dialects.settle_all()
