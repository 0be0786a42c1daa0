"""IR that decodes and encodes narrow elements as codes, one a byte, where IREE cannot load or store the type."""
