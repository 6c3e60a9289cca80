"""A real SGLang for the CPU: its environment (`install`), model and data (scripts), stand-ins (`stubs`)."""
