"""The classic control tasks of Gymnasium 1.4 as traceable environments: same physics, rewards, limits and spaces."""
