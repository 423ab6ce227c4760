"""Sentences for the demo's data, written for this project: commands, questions, side-talk, self-talk, everyday speech.

The sentences live in ``texts/*.yaml`` as wordings with ``{slots}``.  A wording belongs to one split (``train`` or
``heldout``); slot values are shared.  Nothing here knows about voices, rooms or prompts.
"""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml

Split = Literal["train", "heldout"]
Kind = Literal["command", "context", "question", "grounded", "side_command", "side_chat", "self_talk", "general"]

DISCOURSE = ("planning", "regret", "quotation", "sarcasm", "rhetorical")
"""Frames of self-talk."""

_BEGUN = {
    "order": ("I", "I'd", "I'm", "Please", "Let's", "Let", "Next", "Do", "Don't"),
    "question": ("Can", "Could"),
}
"""First words of wordings that no further beginning fits."""
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One sentence somebody says, and what it would mean if it were meant for the assistant."""

    text: str
    kind: Kind
    split: Split
    template_id: str
    """Wording it comes from: what keeps evaluation's sentences out of training."""
    tool: str | None = None
    """Tool that the words name, also where nobody is to act (self-talk, side-talk)."""
    arguments: dict[str, str] = field(default_factory=dict)
    answers: tuple[str, ...] = ()
    """Accepted answers of a question, the preferred one first."""
    reference: str = ""
    """Text that a grounded question is about."""
    discourse: str = ""


@cache
def _load(name: str) -> dict[str, Any]:
    path = resources.files("wearllama.data").joinpath("texts", f"{name}.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def slot_values() -> dict[str, list[str]]:
    """Values of each slot, as strings."""
    return {name: [str(value) for value in values] for name, values in _load("slots").items()}


def wearvox_tools() -> tuple[str, ...]:
    """Names of the WearVox tools that have wordings."""
    return tuple(_load("wearvox_tools"))


def consequential_tools() -> tuple[str, ...]:
    """Names of the consequential tools that have wordings."""
    return tuple(_load("consequential_tools"))


def slots_of(template: str) -> list[str]:
    """Slot names of a wording in lower case, in order, each once."""
    return list(dict.fromkeys(name.lower() for name in _SLOT.findall(template)))


def fill(template: str, values: Mapping[str, str]) -> str:
    """A wording with its slots filled; ``{Name}`` is filled capitalised.  Repairs articles that meet (``the the``)."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        text = values[name.lower()]
        return text[0].upper() + text[1:] if name[0].isupper() else text

    text = _SLOT.sub(value, template)
    text = re.sub(r"\b(the|next|last|my|new|a|this) the ", r"\1 ", text)
    text = re.sub(r"\bfor on ", "for ", text)
    text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
    return text[0].upper() + text[1:]


def draw_slots(names: Iterable[str], rng: random.Random) -> dict[str, str]:
    """One value for each slot name."""
    table = slot_values()
    return {name: rng.choice(table[name]) for name in names}


def _tool_table(tool: str) -> dict[str, Any]:
    for name in ("wearvox_tools", "consequential_tools"):
        if tool in _load(name):
            return _load(name)[tool]
    raise ValueError(f"no wordings for tool {tool!r}, wanted one of {wearvox_tools() + consequential_tools()}")


def templates(tool: str, split: Split) -> list[str]:
    """Wordings of a tool, without their ``| key=value`` notes."""
    return [line.split("|")[0].strip() for line in _tool_table(tool)[split]]


def contexts(tool: str, split: Split) -> list[str]:
    """Wordings of what is said just before a command of a consequential tool."""
    return list(_tool_table(tool)["contexts"][split])


def _arguments(table: Mapping[str, Any], notes: str, values: Mapping[str, str]) -> dict[str, str]:
    """Short arguments of a call: ``search_query`` from the tool's pattern, named ones from slots, notes on top."""
    arguments: dict[str, str] = {}
    if table.get("query"):
        query = _SLOT.sub(lambda match: values.get(match.group(1), ""), table["query"])
        words = query.lower().split()
        # A weekday's "on" carries nothing in a query.
        arguments["search_query"] = " ".join(word for word in words if word != "on") or "any"
    if "api" in table:
        arguments["api"] = table["api"]
    for slot, name in table["slots"].items():
        if slot in values and name not in arguments and name != "search_query":
            arguments[name] = values[slot].removeprefix("on ")
    for note in filter(None, (part.strip() for part in notes.split(";"))):
        key, value = note.split("=")
        arguments[key] = value
    return arguments


def command(tool: str, split: Split, rng: random.Random, index: int | None = None, *, begun: float = 0.0) -> Utterance:
    """A request for ``tool``: a random wording of the split, or wording number ``index`` (modulo their count).

    ``begun``: how often a WearVox request gets one of the beginnings that any request can have (``texts/frames.yaml``).
    """
    table = _tool_table(tool)
    lines = table[split]
    number = rng.randrange(len(lines)) if index is None else index % len(lines)
    template, _, notes = (part.strip() for part in lines[number].partition("|"))
    if begun and tool in wearvox_tools() and rng.random() < begun:
        template = begin(template, rng)
    values = draw_slots(slots_of(template), rng)
    return Utterance(
        text=fill(template, values),
        kind="command",
        split=split,
        template_id=f"{tool}/{split}/{number}",
        tool=tool,
        arguments=_arguments(table, notes, values),
    )


def begin(template: str, rng: random.Random) -> str:
    """A wording behind a drawn beginning; one that begins like that already is left as it is."""
    kind = "question" if template.endswith("?") else "order"
    if template.split()[0] in _BEGUN[kind]:
        return template
    core = template.rstrip(".?")
    small = core if core.startswith("{") else core[0].lower() + core[1:]
    return rng.choice(_load("frames")[kind]).replace("{core}", small).replace("{Core}", core)


def context(tool: str, split: Split, rng: random.Random, index: int | None = None) -> Utterance:
    """What a wearer says just before a command of ``tool`` in a speaker-switch case: no request in itself."""
    lines = contexts(tool, split)
    number = rng.randrange(len(lines)) if index is None else index % len(lines)
    text = fill(lines[number], draw_slots(slots_of(lines[number]), rng))
    return Utterance(text=text, kind="context", split=split, template_id=f"context/{tool}/{split}/{number}", tool=tool)


def _core(tool: str, rng: random.Random) -> dict[str, str]:
    return rng.choice(_load("self_talk")["cores"][tool])


def _framed(frame: str, tool: str, rng: random.Random) -> str:
    """A frame around a command core of ``tool``; slots of both are filled."""
    core = _core(tool, rng)
    core = core | {form.capitalize(): text[0].upper() + text[1:] for form, text in core.items()}
    template = _SLOT.sub(lambda match: core.get(match.group(1), match.group(0)), frame)
    return fill(template, draw_slots(slots_of(template), rng))


def self_talk(
    discourse: str, split: Split, rng: random.Random, *, tool: str | None = None, index: int | None = None
) -> Utterance:
    """A command-like monologue: planning, regret, quotation, sarcasm or a rhetorical question around a command core."""
    frames = _load("self_talk")[discourse][split]
    number = rng.randrange(len(frames)) if index is None else index % len(frames)
    tool = tool or rng.choice(consequential_tools())
    return Utterance(
        text=_framed(frames[number], tool, rng),
        kind="self_talk",
        split=split,
        template_id=f"{discourse}/{split}/{number}",
        tool=tool,
        discourse=discourse,
    )


def side_command(split: Split, rng: random.Random, *, tool: str | None = None, index: int | None = None) -> Utterance:
    """A command-like sentence to a person: the same cores, addressed to somebody."""
    frames = _load("side_talk")["command"][split]
    number = rng.randrange(len(frames)) if index is None else index % len(frames)
    tool = tool or rng.choice(consequential_tools())
    text = _framed(frames[number], tool, rng)
    return Utterance(text=text, kind="side_command", split=split, template_id=f"to_person/{split}/{number}", tool=tool)


def side_chat(split: Split, rng: random.Random, *, index: int | None = None) -> Utterance:
    """Conversation with a person."""
    lines = _load("side_talk")["chat"][split]
    number = rng.randrange(len(lines)) if index is None else index % len(lines)
    text = fill(lines[number], draw_slots(slots_of(lines[number]), rng))
    return Utterance(text=text, kind="side_chat", split=split, template_id=f"chat/{split}/{number}")


def num_facts() -> int:
    """How many closed-book facts there are."""
    return len(_load("questions")["facts"])


def question(fact: int, split: Split, rng: random.Random, *, index: int | None = None) -> Utterance:
    """Closed-book question number ``fact`` in a wording of the split."""
    entry = _load("questions")["facts"][fact]
    lines = entry[split]
    number = rng.randrange(len(lines)) if index is None else index % len(lines)
    return Utterance(
        text=lines[number],
        kind="question",
        split=split,
        template_id=f"fact{fact}/{split}/{number}",
        answers=tuple(str(answer) for answer in entry["answers"]),
    )


def grounded_question(split: Split, rng: random.Random, *, index: int | None = None) -> Utterance:
    """A question about a short reference text; ``index`` picks the (text, asked slot) pair, wordings are drawn."""
    pairs = [(i, slot) for i, entry in enumerate(_load("questions")["grounded"]) for slot in entry["ask"]]
    i, slot = pairs[rng.randrange(len(pairs)) if index is None else index % len(pairs)]
    entry = _load("questions")["grounded"][i]
    lines = entry["ask"][slot][split]
    number = rng.randrange(len(lines))
    values = draw_slots(slots_of(entry["text"]), rng)
    answer = values[slot]
    bare = re.sub(r"^(on|the|a) ", "", answer)
    return Utterance(
        text=fill(lines[number], values),
        kind="grounded",
        split=split,
        template_id=f"grounded{i}.{slot}/{split}/{number}",
        answers=tuple(dict.fromkeys((answer, bare))),
        reference=fill(entry["text"], values),
    )


def general(rng: random.Random, *, index: int | None = None) -> Utterance:
    """An everyday sentence (training only)."""
    table = _load("general")
    lines: Sequence[str] = table["templates"] + table["fixed"]
    number = rng.randrange(len(lines)) if index is None else index % len(lines)
    lists = table["lists"]
    values = {name: str(rng.choice(lists[name.rstrip("2")])) for name in slots_of(lines[number])}
    text = fill(lines[number], values)
    return Utterance(text=text, kind="general", split="train", template_id=f"general/train/{number}")


def generate(split: Split, rng: random.Random, *, fills: int = 1) -> list[Utterance]:
    """Every wording of a split, each filled ``fills`` times; sentences that repeat are kept once."""
    rows: list[Utterance] = []
    tables = _load("self_talk"), _load("side_talk")
    for _ in range(fills):
        for tool in wearvox_tools() + consequential_tools():
            rows += [command(tool, split, rng, i) for i in range(len(templates(tool, split)))]
        for tool in consequential_tools():
            rows += [context(tool, split, rng, i) for i in range(len(contexts(tool, split)))]
        for fact in range(num_facts()):
            rows += [question(fact, split, rng, index=i) for i in range(len(_load("questions")["facts"][fact][split]))]
        rows += [grounded_question(split, rng, index=i) for i in range(12)]
        for discourse in DISCOURSE:
            rows += [self_talk(discourse, split, rng, index=i) for i in range(len(tables[0][discourse][split]))]
        rows += [side_command(split, rng, index=i) for i in range(len(tables[1]["command"][split]))]
        rows += [side_chat(split, rng, index=i) for i in range(len(tables[1]["chat"][split]))]
        if split == "train":
            rows += [general(rng, index=i) for i in range(len(_load("general")["templates"]))]
    if split == "train":
        first = len(_load("general")["templates"])
        rows += [general(rng, index=first + i) for i in range(len(_load("general")["fixed"]))]
    return list({row.text: row for row in rows}.values())


def normalise(text: str) -> str:
    """Lower case, letters, digits and apostrophes only: how wordings are compared."""
    return " ".join(re.findall(r"[a-z0-9']+", text.lower()))
