"""Codes of narrow elements as IR: decoding, encoding, and one code a byte, where IREE cannot load or store the type."""
