"""Hold our tool-call comparison against the leaderboard's own checker, on its own gold calls and on mutations of them.

Run as: pip download --no-deps bfcl-eval==2026.3.23 -d /tmp/bfcl
        python tools/check_ast.py /tmp/bfcl/bfcl_eval-2026.3.23-py3-none-any.whl
        python tools/check_ast.py WHEEL --seed 1 --mutations 4

Data and checker are read from the wheel at run time; nothing of it is kept. Exit code 1 if ours rejects what the
reference accepts. Ours may accept more in one place: parallel calls are matched optimally, not greedily.
"""

import argparse
import copy
import enum
import json
import random
import re
import sys
import types
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from wearllama.data.actions import Call
from wearllama.evaluation.ast_match import FunctionSpec, Gold, match_calls

CATEGORIES = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "live_simple", "live_multiple", "live_parallel",
    "live_parallel_multiple",
)  # fmt: skip
Reference = Callable[[list[Any], list[Call], Sequence[Gold], str], bool]


def load_reference(wheel: zipfile.ZipFile) -> Reference:
    """The wheel's checker without what it imports (API clients, model lists), none of which Python items need."""
    source = wheel.read("bfcl_eval/eval_checker/ast_eval/ast_checker.py").decode()
    language = enum.Enum("Language", ["PYTHON", "JAVA", "JAVASCRIPT"])

    class Models(dict[str, Any]):
        def __missing__(self, key: str) -> Any:
            return types.SimpleNamespace(underscore_to_dot=False)

    space: dict[str, Any] = {"re": re, "Language": language, "MODEL_CONFIG_MAPPING": Models(),
                             "JAVA_TYPE_CONVERSION": {}, "JS_TYPE_CONVERSION": {}}  # fmt: skip
    exec(source[source.index("#### Constants ####") :], space)

    def check(functions: list[Any], calls: list[Call], gold: Sequence[Gold], category: str) -> bool:
        said = [{call.name: copy.deepcopy(call.arguments)} for call in calls]
        wanted = copy.deepcopy(list(gold))
        found = space["ast_checker"](copy.deepcopy(functions), said, wanted, language["PYTHON"], category, "any")
        return bool(found["valid"])

    return check


def items(wheel: zipfile.ZipFile, category: str) -> list[tuple[str, list[Any], list[Any]]]:
    """(id, functions, gold calls) of a category."""

    def rows(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in wheel.read(f"bfcl_eval/data/{name}").decode().splitlines() if line]

    gold = {row["id"]: row["ground_truth"] for row in rows(f"possible_answer/BFCL_v4_{category}.json")}
    return [(row["id"], row["function"], gold[row["id"]]) for row in rows(f"BFCL_v4_{category}.json")]


def gold_as_calls(gold: Sequence[Gold], functions: Sequence[Any]) -> list[Call]:
    """Calls that say the gold: the first accepted value of each parameter that is not optional."""
    properties = {f["name"]: f["parameters"]["properties"] for f in functions}
    calls = []
    for entry in gold:
        ((name, accepted),) = entry.items()
        arguments = {}
        for key, values in accepted.items():
            if values and values[0] != "":
                arguments[key] = _concrete(values[0], properties.get(name, {}).get(key, {}))
        calls.append(Call(name, arguments))
    return calls


def _concrete(value: Any, schema: dict[str, Any]) -> Any:
    """Values inside objects are lists of accepted values too."""
    if isinstance(value, dict):
        return {key: inner[0] for key, inner in value.items() if "" not in inner}
    if isinstance(value, list) and (schema.get("items") or {}).get("type") == "dict":
        return [_concrete(item, {}) for item in value]
    return value


def mutate(calls: list[Call], kind: str, draw: random.Random) -> list[Call] | None:
    """Calls with one change of a kind; None where there is nothing to change."""
    changed = copy.deepcopy(calls)
    index = draw.randrange(len(changed))
    call = changed[index]
    key = draw.choice(sorted(call.arguments)) if call.arguments else None
    if kind == "order":
        draw.shuffle(changed)
    elif kind == "extra call":
        changed.append(copy.deepcopy(call))
    elif kind == "missing call":
        changed.pop(index)
    elif kind == "name":
        changed[index] = Call(f"{call.name}_x", call.arguments)
    elif kind == "extra argument":
        call.arguments["surplus"] = 1
    elif key is None:
        return None
    elif kind == "missing argument":
        call.arguments.pop(key)
    else:
        value = call.arguments[key]
        call.arguments[key] = VALUES[kind](value)
    return changed


VALUES: dict[str, Callable[[Any], Any]] = {
    "case and signs": lambda v: f" {v.upper()}.," if isinstance(v, str) else v,
    "as text": str,
    "in a list": lambda v: [v],
    "other value": lambda v: v + v if isinstance(v, str | list) else "other" if isinstance(v, dict) else not v,
    "true for one": lambda v: True if v == 1 else v,
    "whole number as float": lambda v: float(v) if type(v) is int else v,
    "null": lambda v: None,
    "empty": lambda v: type(v)(),
}
KINDS = ("order", "extra call", "missing call", "name", "extra argument", "missing argument", *VALUES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutations", type=int, default=len(KINDS), help="kinds tried on each item")
    args = parser.parse_args()
    if not args.wheel.is_file():
        sys.exit(f"error: no wheel at {args.wheel}; see Run as")
    counts: Counter[tuple[str, str]] = Counter()
    deviations: list[str] = []
    rejects = 0
    with zipfile.ZipFile(args.wheel) as wheel:
        reference = load_reference(wheel)
        for category in CATEGORIES:
            for name, functions, gold in tqdm(items(wheel, category), desc=category, disable=not sys.stderr.isatty()):
                draw = random.Random(f"{args.seed} {name}")
                calls = gold_as_calls(gold, functions)
                trials = [("gold", calls)]
                for kind in draw.sample(KINDS, min(args.mutations, len(KINDS))):
                    changed = mutate(calls, kind, draw) if calls else None
                    trials += [(kind, changed)] if changed is not None else []
                for kind, said in trials:
                    verdict = compare(said, gold, functions, category, reference)
                    counts[kind, verdict] += 1
                    if verdict not in ("both accept", "both reject"):
                        deviations.append(f"{name} ({kind}): {verdict}")
                    rejects += verdict == "only the reference accepts"
    verdicts = sorted({verdict for _, verdict in counts})
    print(f"{'':24}" + "".join(f"{verdict:>28}" for verdict in verdicts))
    for kind in ("gold", *KINDS):
        print(f"{kind:24}" + "".join(f"{counts[kind, verdict]:>28}" for verdict in verdicts))
    print(f"\n{len(deviations)} deviations")
    for line in deviations:
        print(f"  {line}")
    sys.exit(1 if rejects else 0)


def compare(said: list[Call], gold: Sequence[Gold], functions: list[Any], category: str, reference: Reference) -> str:
    """Who accepts."""
    specs = {f["name"]: FunctionSpec.from_json_schema(f) for f in functions}
    try:
        ours = match_calls(said, gold, specs).ok
    except ValueError as error:  # gold that calls what is not among the tools
        return f"gold names an unknown tool ({str(error)[:20]}...)"
    try:
        theirs = reference(functions, said, gold, category)
    except Exception as error:  # the reference fails on some values; that is no verdict
        return f"the reference raises {type(error).__name__}"
    if ours == theirs:
        return "both accept" if ours else "both reject"
    return "only ours accepts" if ours else "only the reference accepts"


if __name__ == "__main__":
    main()
