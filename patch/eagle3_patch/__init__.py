"""Hidden-state capture inside SGLang's own processes. Nothing here runs unless a dump directory is set."""

__version__ = "0.1.0"
