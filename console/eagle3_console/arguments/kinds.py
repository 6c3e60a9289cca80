"""Kinds of values on the command line; each refuses with a sentence."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number from 1."""
    value = natural(text)
    if value == 0:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return value


def natural(text: str) -> int:
    """A whole number from 0."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"a whole number is needed, not {text!r}")
    return value


def port(text: str) -> int:
    """A TCP port."""
    value = natural(text)
    if not 1 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"a port lies between 1 and 65535, not {text}")
    return value


def boundaries(text: str) -> tuple[int, ...]:
    """``A,B,C`` as ascending numbers, each once."""
    values = [natural(part) for part in text.split(",")]
    if len(set(values)) != len(values):
        raise argparse.ArgumentTypeError(f"{text} names one boundary twice")
    return tuple(sorted(values))


def pair(text: str) -> tuple[str, str]:
    """``NAME=VALUE``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"NAME=VALUE is needed, not {text!r}")
    return key, value
