"""The glossary: nouns in order, each with the module or the class that owns it."""

import importlib.util
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "glossary.md"


def exists(name: str) -> bool:
    """Returns whether a dotted name is a module, or an attribute of one."""
    parent, _, last = name.rpartition(".")
    if last.islower() and importlib.util.find_spec(name):
        return True
    return hasattr(importlib.import_module(parent), last)


def test_nouns_are_sorted_and_their_modules_exist() -> None:
    block = PAGE.read_text(encoding="utf-8").split("```{glossary}\n")[1].split("\n```")[0]
    entries = [entry.partition("\n") for entry in block.split("\n\n")]
    nouns = [noun for noun, _, _ in entries]
    assert len(nouns) >= 60
    assert nouns == sorted(nouns, key=lambda noun: noun.lower().replace("-", " "))
    for noun, _, text in entries:
        owner = re.search(r"Module:\s+`([\w.]+)`\.$", text)
        assert owner, noun
        assert exists(owner[1]), f"{noun}: {owner[1]}"
