"""What holds for every test: shapes never broadcast by accident, and one XLA thread setting."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
