"""Games for two, written in JAX."""
