"""The SGLang server: its launch line, its true state, its start, stop and restart, and servers that others started."""
