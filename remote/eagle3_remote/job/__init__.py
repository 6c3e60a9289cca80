"""Detached jobs: one run directory each, a supervisor that outlives every console, and their provable end."""
