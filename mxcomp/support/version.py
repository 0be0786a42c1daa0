"""The version of this package, which files of other versions are compared with."""

__version__ = "0.1.0"
