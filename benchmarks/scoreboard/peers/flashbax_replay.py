"""flashbax's prioritised replay: the same fused program as ours over it, rows per second."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from replay import figure

print(figure("flashbax", sys.argv[1], repeats=15))
