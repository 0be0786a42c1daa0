"""What the whole compiler needs of MLIR and IREE: building and reading IR, attributes, and sessions of IREE."""
