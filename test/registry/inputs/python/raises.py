"""A file that raises."""

NOTHING = ()
INSTANCES = (1 / 0,)
