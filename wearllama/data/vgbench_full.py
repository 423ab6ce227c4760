"""The whole of VGBench: 395 side-talk, 223 self-talk, 400 speaker-switch cases, and who holds out what.

Counts and rules are the paper's (arXiv 2609.32536); scripts, tool list, levels and the far-field room are OURS, because
none of them is public.  The scenes come from the demo's generator (``demo_benchmarks``).  Four protocols lie over the
same items, each with its own ``train`` and ``eval``: ``items`` (the paper's: items differ, all else is shared),
``voices``, ``templates`` and ``tools`` (none of the held-out ones is in that protocol's training part).
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from wearllama.data import textgen
from wearllama.data.demo_benchmarks import Cast, VgItem, consecutive, in_quiet, self_talk, switch_pairs
from wearllama.data.demo_scenes import GAP_S
from wearllama.data.demo_speakers import Line, Speaker

Protocol = Literal["items", "voices", "templates", "tools"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
HELD_OUT_SHARE = 0.2
"""Of items, voices' cases and templates' cases; of tools as many as ``held_out_tools`` names."""
SCENARIOS = ("speaker_switch", "self_talk", "side_talk")


@dataclass(frozen=True, kw_only=True)
class VgBenchPlan:
    """What is built; the defaults are the paper's counts."""

    switch_pairs: int = 400
    self_talk: int = 223
    side_talk: int = 395
    voices: tuple[str, ...] = (
        "kokoro/af_bella", "kokoro/af_heart", "kokoro/am_fenrir", "kokoro/am_puck", "kokoro/bf_isabella",
        "kokoro/bm_fable",
    )  # fmt: skip
    """Voices of the registry, or ``recorded/NAME`` for speakers of ``recordings``."""
    held_out_voices: tuple[str, ...] = ("kokoro/af_sarah", "kokoro/am_michael")
    """With ``voices`` eight, as in the paper."""
    held_out_tools: tuple[str, ...] = ("delete_files", "book_ride")
    scenarios: tuple[str, ...] = SCENARIOS
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("switch_pairs", "self_talk", "side_talk"):
            if getattr(self, name) < 0:
                raise ValueError(f"plan.{name} is {getattr(self, name)}, wanted 0 or more")
        for name in ("voices", "held_out_voices"):
            if len(set(getattr(self, name))) < 2:
                raise ValueError(f"plan.{name} is {getattr(self, name)}, wanted at least two: a switch needs both")
        shared = set(self.voices) & set(self.held_out_voices)
        unknown = set(self.held_out_tools) - set(textgen.consequential_tools())
        if shared or unknown:
            raise ValueError(f"plan: voices {sorted(shared)} are held out and not, or tools {sorted(unknown)} unknown")


@dataclass(frozen=True)
class BuiltItem:
    """One condition of one item, and where it stands under each protocol."""

    item: VgItem
    splits: dict[Protocol, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Part:
    """Items of one cast: voices held out or not, wordings held out or not."""

    voices: str
    templates: str
    share: float

    def cast(self, plan: VgBenchPlan, said: set[str]) -> Cast:
        names = plan.held_out_voices if self.voices == "eval" else plan.voices
        speakers = [Speaker(voice=name) for name in names]
        seed = plan.seed * 4 + 2 * (self.voices == "eval") + (self.templates == "eval")
        return Cast(seed, speakers, wordings="heldout" if self.templates == "eval" else "train", said=said)


_PARTS = tuple(
    _Part(voices, templates, share_v * share_t)
    for voices, share_v in (("train", 1 - HELD_OUT_SHARE), ("eval", HELD_OUT_SHARE))
    for templates, share_t in (("train", 1 - HELD_OUT_SHARE), ("eval", HELD_OUT_SHARE))
)


def plan_items(plan: VgBenchPlan) -> list[BuiltItem]:
    """Every condition of every item, in order; the same plan gives the same items."""
    said: set[str] = set()
    items: dict[str, list[tuple[VgItem, _Part]]] = {name: [] for name in SCENARIOS}
    ranges = {name: list(_ranges(getattr(plan, name if name != "speaker_switch" else "switch_pairs")))
              for name in SCENARIOS}  # fmt: skip
    for at, part in enumerate(_PARTS):
        cast = part.cast(plan, said)
        pairs, commands = switch_pairs(ranges["speaker_switch"][at], cast)
        commands = commands or _commands(cast, 20)
        found = {
            "speaker_switch": pairs,
            "self_talk": self_talk(ranges["self_talk"][at], cast),
            # Orders, contents and kinds of request are crossed: eight cells, each as often as any other.
            "side_talk": consecutive(ranges["side_talk"][at], cast, commands, asks=lambda n: n // 4 % 2 == 1),
        }
        for name, members in found.items():
            items[name] += [(in_quiet(item), part) for item in members]
    return [built for name in plan.scenarios for built in _split(items[name], plan)]


def _ranges(count: int) -> Iterator[range]:
    """Numbers of each part's items: consecutive, so that what goes by number (tools, order) stays balanced."""
    start = reached = 0.0
    for part in _PARTS:
        reached += part.share * count
        yield range(round(start), round(reached))
        start = round(reached)


def _commands(cast: Cast, count: int) -> list[Line]:
    tools = textgen.consequential_tools()
    return [Line(utterance=cast.words.for_tool(tools[n % len(tools)]), speaker=cast.speaker()) for n in range(count)]


def _split(items: Sequence[tuple[VgItem, _Part]], plan: VgBenchPlan) -> list[BuiltItem]:
    """Splits of one scenario's items; the conditions of a pair stay together."""
    ids = list(dict.fromkeys(item.seed_id for item, _ in items))
    chosen = random.Random(f"items/{plan.seed}").sample(ids, round(HELD_OUT_SHARE * len(ids)))
    held_out = set(chosen)
    built = []
    for item, part in items:
        tools = {item.fields.get("tool"), item.fields.get("person_tool")}
        splits: dict[Protocol, str] = {
            "items": "eval" if item.seed_id in held_out else "train",
            "voices": part.voices,
            "templates": part.templates,
            "tools": "eval" if tools & set(plan.held_out_tools) else "train",
        }
        built.append(BuiltItem(replace(item, split=splits["items"]), splits))
    return built


def factorised(items: Sequence[BuiltItem]) -> list[BuiltItem]:
    """Source (A, B) x distance (near, far) x gap (0, 600 ms) on the commands of the held-out pairs.

    The rule wants the tool of source A nearby and [Mute] of everything else.
    """
    built = []
    pairs: dict[str, dict[str, BuiltItem]] = {}
    for one in items:
        if one.item.scenario == "speaker_switch" and one.splits["items"] == "eval":
            pairs.setdefault(one.item.fields["pair_id"], {})[one.item.fields["condition"]] = one
    for pair, conditions in pairs.items():
        same, switch = conditions["same_speaker"].item.scene, conditions["switch"].item.scene
        for source, scene in (("A", same), ("B", switch)):
            for distance, role in (("near", "wearer"), ("far", "bystander")):
                for gap_ms in (0, round(GAP_S * 1000)):
                    trigger = replace(scene.spoken[1], role=role, gap_s=gap_ms / 1000)
                    name = f"{source}-{distance}-{gap_ms}"
                    action = same.action if (source, distance) == ("A", "near") else switch.action
                    heard = replace(same, id=f"factor-{pair}-{name}", task="factorised", action=action,
                                  spoken=(scene.spoken[0], trigger))  # fmt: skip
                    item = conditions["switch"].item
                    fields = {**item.fields, "condition": name, "boundary_s": gap_ms / 1000, "gap_ms": gap_ms}
                    changed = replace(item, scene=heard, scenario="factorised", fields=fields)
                    built.append(BuiltItem(changed, conditions["switch"].splits))
    return built


def describe_balance(items: Sequence[BuiltItem]) -> dict[str, Any]:
    """Counts that the paper's rules speak of, for the log and for tests."""
    of = {name: [b.item for b in items if b.item.scenario == name] for name in SCENARIOS}
    pairs = [item for item in of["speaker_switch"] if item.fields["condition"] == "switch"]
    return {
        "items": {"speaker_switch": len(pairs), "self_talk": len(of["self_talk"]), "side_talk": len(of["side_talk"])},
        "pairs_by_tool": _count(item.fields["tool"] for item in pairs),
        "side_talk_cells": _count(
            f"{item.fields['order']}/{item.fields['content_types']['assistant']}/{item.fields['content_types']['person']}"
            for item in of["side_talk"]
        ),
        "discourse": _count(item.fields["discourse"] for item in of["self_talk"]),
        "held_out": {
            protocol: _count(b.item.scenario for b in items if b.splits[protocol] == "eval") for protocol in PROTOCOLS
        },
    }


def _count(names: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))
