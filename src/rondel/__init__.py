"""Distributed reinforcement learning on JAX."""
