"""A sequence and its first difference, for people."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from barnabas.protocol.compiler.structs import Struct
from interop.differential.references import Name, Reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interop.differential.comparison import Difference
    from interop.differential.running import Exchange
    from interop.differential.sides import Answer


def told(differences: Sequence[Difference], exchanges: Sequence[Exchange]) -> str:
    """Where the answers to the last request differ, and what was sent up to it."""
    lines = []
    for each in differences:
        lines += [each.path, f"    Barnabas: {each.ours!r}", f"    Kafka:    {each.kafkas!r}"]
    for exchange in exchanges:
        step = exchange.step
        cut = f", {step.cut} bytes cut off" if step.cut > 0 else ", a byte too long" if step.cut else ""
        lines.append(f"  {exchange.number}. {brief(step.request)} v{step.version} on connection {step.connection}{cut}")
    ours, kafkas = exchanges[-1].answers
    return "\n".join([*lines, f"  Barnabas answered: {answered(ours)}", f"  Kafka answered:    {answered(kafkas)}"])


def answered(answer: Answer) -> str:
    return answer.instead if answer.message is None else brief(answer.message)


def brief(value: Any) -> str:
    """A message with those of its fields that are not as they are by themselves."""
    if isinstance(value, list):
        return f"[{', '.join(map(brief, value))}]"
    if isinstance(value, Reference):
        return _brief_reference(value)
    if isinstance(value, memoryview):
        return repr(bytes(value))
    if not isinstance(value, Struct):
        text = repr(value)
        return text if len(text) < 160 else f"{text[:150]}… ({len(text)})"
    plain = type(value)()
    fields = ", ".join(
        f"{name}={brief(getattr(value, name))}"
        for name in value.__slots__
        if getattr(value, name) != getattr(plain, name)
    )
    return f"{type(value).__name__}({fields})"


def _brief_reference(value: Reference) -> str:
    if isinstance(value, Name):
        return repr(value.text)
    shown = [(each, getattr(value, each.name)) for each in fields(value)]
    words = ", ".join(f"{each.name}={brief(held)}" for each, held in shown if held != each.default)
    return f"{type(value).__name__}({words})"
