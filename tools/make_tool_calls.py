"""Commands for arbitrary tool schemas, with their calls: JSONL that tools/speak_instructions.py speaks.

``method=templates`` says a tool's purpose and its arguments' known values in plain patterns, offline; ``method=model``
asks a text model for sentences and arguments as JSON and keeps what fits the schema. Schemas: OpenAI's functions, JSON
Schema or this project's shape. Every prompt offers the right tool among ``distractors`` others.

Run as: python tools/make_tool_calls.py schemas=tools.json out=data/calls.jsonl
        python tools/make_tool_calls.py schemas=tools.json out=... method=model chat.model=openai:NAME per_tool=50
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from tqdm import tqdm

from wearllama.atomic import write_text
from wearllama.data.actions import Call, Dialect, format_action, tool
from wearllama.data.prompts import PromptStyle, load_prompts
from wearllama.data.schemas import Schema, read_schemas, why_not
from wearllama.evaluation.chat import ChatConfig, ChatModel, open_chat
from wearllama_launch import existing_path, launch

FRAMES = ("{ask}", "please {ask}", "can you {ask}", "could you {ask} for me", "hey, {ask}", "I need you to {ask}")
ASK = (
    "Write {count} different short things a person could say aloud to a voice assistant so that it calls this tool. "
    "Reply with a JSON list only, each item {{\"utterance\": \"...\", \"arguments\": {{...}}}}; every value must be "
    "said in its utterance, and arguments in brackets may be left out.\nTool: {name}: {description}\nArguments: "
    "{arguments}"
)  # fmt: skip


@dataclass(kw_only=True)
class MakeToolCalls:
    schemas: str
    out: str
    method: Literal["templates", "model"] = "templates"
    chat: ChatConfig = field(default_factory=ChatConfig)
    per_tool: int = 20
    distractors: int = 7
    dialect: Dialect = "wearvox"
    style: PromptStyle = "full"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.per_tool < 1 or self.distractors < 0:
            raise ValueError(f"per_tool {self.per_tool} and distractors {self.distractors}: wanted 1 and 0 or more")


Said = tuple[str, dict[str, str]]


@launch("make_tool_calls", MakeToolCalls)
def main(config: MakeToolCalls) -> None:
    schemas = read_schemas(existing_path(config.schemas, "schemas"))
    model = open_chat(config.chat) if config.method == "model" else None
    dropped: Counter[str] = Counter()
    lines = []
    for schema in tqdm(schemas, unit="tool"):
        rng = random.Random(f"{config.seed}/{schema.spec.name}")
        said = (
            ask_model(schema, model, config.per_tool, dropped)
            if model
            else list(templates(schema, config.per_tool, rng))
        )
        if not said:
            print(f"{schema.spec.name}: no sentence; give its arguments enum or examples, or use method=model")
        for number, (words, arguments) in enumerate(said):
            lines.append(line(f"{schema.spec.name}-{number:04d}", words, arguments, schema, schemas, rng, config))
    if not lines:
        raise ValueError(f"{config.schemas}: no command came of {len(schemas)} tools; left out: {dict(dropped)}")
    write_text(config.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in lines))
    print(f"{config.out}: {len(lines)} commands for {len(schemas)} tools; left out: {dict(dropped)}")


def line(
    row_id: str, words: str, arguments: dict[str, str], schema: Schema, schemas: list[Schema], rng: random.Random,
    config: MakeToolCalls,
) -> dict[str, Any]:  # fmt: skip
    """What tools/speak_instructions.py reads."""
    others = [other.spec for other in schemas if other is not schema]
    offered = [*rng.sample(others, min(config.distractors, len(others))), schema.spec]
    rng.shuffle(offered)
    system = load_prompts(style=config.style).system(config.dialect, offered)
    target = format_action(tool(Call(schema.spec.name, dict(arguments))), config.dialect)
    return {
        "id": row_id,
        "task": "tool_call",
        "dialect": config.dialect,
        "prompt": words,
        "target": target,
        "system": system,
    }


def templates(schema: Schema, count: int, rng: random.Random) -> Iterator[Said]:
    """Sentences of the tool's name and its arguments' known values; none where a required one has no known value."""
    spec = schema.spec
    if any(name not in schema.choices for name in spec.required):
        return
    verb = re.sub(r"[_\-.]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", spec.name)).lower()
    seen: set[str] = set()
    for _ in range(20 * count):
        given = [p for p in spec.parameters if p.required or (p.name in schema.choices and rng.random() < 0.4)]
        arguments = {p.name: rng.choice(schema.choices[p.name]) for p in given}
        told = " and ".join(f"{name.replace('_', ' ')} {value}" for name, value in arguments.items())
        ask = f"{verb} with {told}" if told else verb
        words = rng.choice(FRAMES).format(ask=ask)
        words = words[0].upper() + words[1:] + ("?" if words.startswith("c") else ".")
        if words not in seen:
            seen.add(words)
            yield words, arguments
        if len(seen) == count:
            return


def ask_model(schema: Schema, model: ChatModel, count: int, dropped: Counter[str]) -> list[Said]:
    """A text model's sentences; what is no JSON, does not fit the schema or is not said is left out and counted."""
    spec = schema.spec
    arguments = ", ".join(p.name if p.required else f"[{p.name}]" for p in spec.parameters) or "none"
    about = "; ".join(f"{p.name}: {p.description}" for p in spec.parameters)
    prompt = ASK.format(count=count, name=spec.name, description=spec.description, arguments=f"{arguments} ({about})")
    reply = model.complete([[{"role": "user", "content": prompt}]])[0]
    if reply.error:
        raise ValueError(f"{spec.name}: {reply.error}")
    found = re.search(r"\[.*\]", reply.text, re.DOTALL)
    try:
        items = json.loads(found[0]) if found else []
    except json.JSONDecodeError:
        items = []
    if not items:
        dropped["no JSON list"] += 1
    kept: dict[str, dict[str, str]] = {}
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("utterance"), str):
            dropped["no utterance"] += 1
        elif not isinstance(item.get("arguments"), dict):
            dropped["no arguments"] += 1
        elif reason := why_not(schema, item["arguments"]):
            dropped[reason] += 1
        else:
            kept.setdefault(item["utterance"].strip(), {key: str(value) for key, value in item["arguments"].items()})
    return list(kept.items())[:count]


if __name__ == "__main__":
    main()
