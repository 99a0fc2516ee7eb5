"""Training Claw-style personal agents with JAX, from one CPU to a TPU pod."""
