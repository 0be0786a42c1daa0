"""Every row of the semantics' tables against references that share no code with them.

The references are tables too: a mnemonic, a signature in the notation of `values`, and a function of Python ints and
floats, written from the pseudo-code of AMD's CDNA4 ISA document. Floats are computed exactly, as fractions, and rounded
by `exact`.
"""
