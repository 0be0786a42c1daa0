"""A file that raises."""

NOTHING = ()
INSTANCES = (undefined,)  # noqa: F821
