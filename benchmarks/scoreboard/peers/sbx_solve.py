"""SBX's PPO: seconds from the start of the process to a mean return of 475."""

import time

BEGAN = time.monotonic()

from sb3_solving import seconds_to_solve  # noqa: E402
from sbx import PPO  # noqa: E402

print(seconds_to_solve(PPO, BEGAN))
