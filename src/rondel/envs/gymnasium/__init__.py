"""The adapter for Gymnasium: any of its environments as a `HostWorld`. Nothing here imports jax."""
