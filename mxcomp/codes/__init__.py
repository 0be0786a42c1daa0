"""IR that decodes and encodes narrow elements as integer codes, one code a byte, where IREE cannot load or store the
type."""
