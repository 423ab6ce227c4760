"""Every item of a run: one CSV for all systems, and one page with filters and a player for each recording."""

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from jinja2 import Environment

from wearllama.atomic import write_text
from wearllama.data.manifest import Example
from wearllama.evaluation.predictions import Prediction
from wearllama.evaluation.scoring import Outcome

ITEMS, PAGE = "items.csv", "items.html"
_ACOUSTICS = {
    "environment": "environment", "noise_level": "noise_level", "noise_type": "_noise_type", "location": "location",
    "partner_position": "partner_position", "partner_distance": "partner_distance", "bystander": "bystander__y_n_",
}  # fmt: skip
COLUMNS = (
    "system", "id", "task", "kind", "correct", "name", "loose", "strict", "exact", "contains", "session", "unscored",
    "error", "truncated_from_s", "ttft_s", "seconds", *_ACOUSTICS, "words", "wanted", "said", "note", "audio",
)  # fmt: skip
"""Columns of the CSV; marks are 1, 0 or empty."""


class SystemLike(Protocol):
    """What is read of a system (:class:`wearllama.evaluation.evaluate.System`)."""

    label: str
    outcomes: list[Outcome]
    predictions: list[Prediction]


def item_rows(examples: Sequence[Example], systems: Sequence[SystemLike]) -> Iterator[dict[str, Any]]:
    """One row an item and system."""
    for system in systems:
        for example, outcome, prediction in zip(examples, system.outcomes, system.predictions, strict=True):
            yield _row(system.label, example, outcome, prediction)


def _row(label: str, example: Example, outcome: Outcome, prediction: Prediction) -> dict[str, Any]:
    acoustics = example.metadata.get("acoustics") or {}
    audio = example.audio or {}
    marks = {name: int(value) for name, value in outcome.marks.items()}
    return {
        "system": label, "id": example.id, "task": example.task, "kind": outcome.kind, **marks,
        "session": outcome.values.get("session"), "unscored": outcome.unscored, "error": prediction.error,
        "truncated_from_s": outcome.values.get("truncated_from_s"), "ttft_s": prediction.latency.get("ttft_s"),
        "seconds": round(example.seconds, 3), **{name: acoustics.get(key) for name, key in _ACOUSTICS.items()},
        "words": example.metadata.get("transcript"), "wanted": example.target, "said": prediction.raw,
        "note": outcome.note, "audio": audio.get("beam") or audio.get("mc"),
    }  # fmt: skip


def write_items(
    folder: str | Path, title: str, examples: Sequence[Example], systems: Sequence[SystemLike], root: str | Path
) -> Path:
    """Write items.csv (all systems) and items.html (the first one); returns the page's path.

    The page's players read the recordings where they lie, relative to the page: 59 GB fit into no page.
    """
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in item_rows(examples, systems):
        writer.writerow(row)
    write_text(Path(folder) / ITEMS, stream.getvalue())
    page = Path(folder) / PAGE
    base = Path(os.path.relpath(Path(root).resolve(), Path(folder).resolve())).as_posix()
    write_text(page, render_items(title, list(item_rows(examples, systems[:1])), base))
    return page


def render_items(title: str, rows: Sequence[Mapping[str, Any]], base: str) -> str:
    """The page: rows as data, shown by a script that sets text and nothing else."""
    data = json.dumps({"rows": rows, "base": base}, ensure_ascii=False)
    safe = data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    safe = safe.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Environment(autoescape=True).from_string(_TEMPLATE).render(title=title, data=safe)


_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src \
'unsafe-inline'; media-src * file: data:">
<style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem auto; max-width: 1150px; padding: 0 1rem; color: #1c2733 }
form { display: flex; flex-wrap: wrap; gap: .5rem; position: sticky; top: 0; background: #fff; padding: .6rem 0 }
select, input { font: inherit; padding: .2rem } .item { border-top: 1px solid #dde3e9; padding: .5rem 0 }
.item code { background: #f2f5f8; white-space: pre-wrap; overflow-wrap: anywhere } .right { color: #20733c }
.wrong { color: #b03a2e } .note { color: #5b6875 } audio { height: 28px; vertical-align: middle }
</style></head><body><h1>{{ title }}</h1>
<form id="filters"></form>
<p><span id="count"></span> <button id="back">back</button> <button id="next">next</button></p>
<div id="items"></div>
<script type="application/json" id="data">{{ data | safe }}</script>
<script>
const {rows, base} = JSON.parse(document.getElementById("data").textContent);
const verdict = r => r.unscored ? "not scored" : r.session != null ? "session" : r.correct ? "right" : "wrong";
const fields = {task: r => r.task, verdict: verdict, kind: r => r.kind, environment: r => r.environment,
  noise: r => r.noise_type, location: r => r.location, distance: r => r.partner_distance,
  cut: r => r.truncated_from_s != null ? "cut" : "whole"};
const form = document.getElementById("filters"), size = 50;
let from = 0;
const node = (tag, text, name) => { const n = document.createElement(tag); n.textContent = text ?? "";
  if (name) n.className = name; return n; };
for (const [name, of] of Object.entries(fields)) {
  const select = node("select"); select.name = name; select.append(new Option(name + ": all", ""));
  for (const value of [...new Set(rows.map(r => String(of(r) ?? "not recorded")))].sort())
    select.append(new Option(value, value));
  form.append(select);
}
const search = node("input"); search.placeholder = "words, id, output"; search.name = "search"; form.append(search);
const chosen = () => rows.filter(r => Object.entries(fields).every(([name, of]) =>
  !form.elements[name].value || String(of(r) ?? "not recorded") === form.elements[name].value) &&
  (!search.value || [r.id, r.words, r.said, r.wanted].join(" ").toLowerCase().includes(search.value.toLowerCase())));
function show() {
  const found = chosen(); from = Math.max(0, Math.min(from, Math.floor((found.length - 1) / size) * size));
  document.getElementById("count").textContent =
    `${found.length} of ${rows.length} items, from ${found.length ? from + 1 : 0}`;
  document.getElementById("items").replaceChildren(...found.slice(from, from + size).map(r => {
    const box = node("div", "", "item"), v = verdict(r);
    box.append(node("b", r.id), node("span", ` ${r.task}, ${r.seconds} s `, "note"),
      node("span", r.session != null ? `session ${(100 * r.session).toFixed(1)} %` : v, v),
      node("span", ` ${r.note || r.unscored || r.error || ""} `, "note"));
    if (r.audio) { const player = node("audio"); player.controls = true; player.preload = "none";
      player.src = base + "/" + r.audio.split("/").map(encodeURIComponent).join("/"); box.append(player); }
    for (const [name, text] of [["words", r.words], ["wanted", r.wanted], ["said", r.said]])
      { box.append(node("br"), node("span", name + " ", "note"), node("code", text)); }
    return box; }));
}
form.addEventListener("input", () => { from = 0; show(); });
form.addEventListener("submit", e => e.preventDefault());
document.getElementById("back").onclick = () => { from -= size; show(); };
document.getElementById("next").onclick = () => { from += size; show(); };
show();
</script></body></html>
"""


def read_items(path: str | Path) -> dict[str, list[dict[str, str]]]:
    """Rows of a run's items.csv by system; ValueError where the file is missing or another."""
    file = Path(path) / ITEMS if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ValueError(f"no {file}: a run's folder holds {ITEMS}")
    systems: dict[str, list[dict[str, str]]] = {}
    csv.field_size_limit(1 << 24)
    with file.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        if missing := {"system", "id", "task", "correct"} - set(reader.fieldnames or ()):
            raise ValueError(f"{file}: the columns {sorted(missing)} are missing")
        for row in reader:
            systems.setdefault(row["system"], []).append(row)
    return systems
