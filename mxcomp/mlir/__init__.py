"""Builds and reads IR and attributes, and runs sessions of IREE; used by the whole compiler."""

from mxcomp.support import iree_versions

iree_versions.check()  # before anything of IREE is imported that another version may lack

from mxcomp.mlir import dialects  # noqa: E402

dialects.register_all()
