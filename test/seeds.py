"""The seed of what is drawn differently each time. MXCOMP_PROGRAMS_SEED gives the same once more."""

from __future__ import annotations

import os
import random

BASE = int(os.environ.get("MXCOMP_PROGRAMS_SEED") or random.SystemRandom().randrange(2**31))
