"""Profiles: what a person would type for one kind of model, kept in a TOML file."""
