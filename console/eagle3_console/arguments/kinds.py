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


def speed(text: str) -> float:
    """How many times as fast, 0.1 to 1000."""
    try:
        value = float(text.removesuffix("x"))
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"a number from 0.1 to 1000 is needed, not {text!r}")
    return value


def moment(text: str) -> float:
    """A place in a recording: ``75``, ``01:15`` or ``1:02:03``, in seconds."""
    parts = text.split(":")
    if len(parts) > 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"seconds, MM:SS or H:MM:SS are needed, not {text!r}")
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return float(seconds)
