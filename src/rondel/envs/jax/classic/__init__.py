"""Gymnasium's classic control tasks, traceable: the same physics, rewards, limits and spaces."""
