"""The report: Markdown, and one self-contained HTML page with plots and players."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment

from wearllama.atomic import write_json, write_text
from wearllama.evaluation.evaluate import CLIPS, RESULTS
from wearllama.evaluation.figures import figures_of
from wearllama.evaluation.tables import MARK, Table, tables_of

_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1150px; padding: 0 1rem; color: #1c2733 }
h1 { font-size: 1.6rem } h2 { margin-top: 2.2rem; border-bottom: 2px solid #2f6690 } h3 { margin: 1.4rem 0 .4rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: 13px }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #dde3e9; text-align: left; white-space: nowrap }
tr.published td { color: #8a5148; font-style: italic } .note { color: #5b6875; font-size: 13px }
.clip { border: 1px solid #dde3e9; border-radius: 8px; padding: .6rem .9rem; margin: .7rem 0 }
.clip audio { height: 30px; vertical-align: middle } .right { color: #20733c } .wrong { color: #b03a2e }
code { background: #f2f5f8; padding: 0 .25rem; white-space: pre-wrap; overflow-wrap: anywhere }
svg { max-width: 100%; height: auto }
</style></head><body>
<h1>{{ title }}</h1>
{% if intro %}<p>{{ intro }}</p>{% endif %}
{% macro table(t) %}<h3>{{ t.title }}</h3><div class="scroll"><table>
<tr>{% for c in t.header %}<th>{{ c }}</th>{% endfor %}</tr>
{% for row in t.rows %}<tr{% if row[0].endswith(mark) %} class="published"{% endif %}>
{%- for c in row %}<td>{{ c }}</td>{% endfor %}</tr>
{% endfor %}</table></div>{% if t.note %}<p class="note">{{ t.note }}</p>{% endif %}{% endmacro %}
{% for t in lead %}{{ table(t) }}{% endfor %}
{% for s in sections %}<h2>{{ s.title }}</h2>
<p class="note">{{ s.facts }}</p>
{{ table(s.tables[0]) }}
{% for name, svg in s.figures %}<h3>{{ name }}</h3>{{ svg | safe }}{% endfor %}
{% for t in s.tables[1:] %}{{ table(t) }}{% endfor %}
{% if s.clips %}<h3>Listen: {{ s.clips | length }} recordings</h3>
{% for c in s.clips %}<div class="clip"><b>{{ c.id }}</b> · {{ c.task }} · {{ c.seconds }} s ·
{% if c.correct is none %}<span class="note">not scored</span>{% else -%}
<span class="{{ 'right' if c.correct else 'wrong' }}">{{ 'right' if c.correct else 'wrong' }}</span>{% endif %}
{% if c.note %}<span class="note">({{ c.note }})</span>{% endif %}<br>
words: <i>{{ c.words or '(none)' }}</i><br>
wanted <code>{{ c.wanted }}</code><br>said <code>{{ c.said or '(nothing)' }}</code><br>
c_0 <audio controls preload="none" src="{{ c.c0 }}"></audio>
beam <audio controls preload="none" src="{{ c.cx }}"></audio></div>
{% endfor %}{% endif %}{% endfor %}
</body></html>
"""


class Section(NamedTuple):
    """One benchmark of the page."""

    title: str
    facts: str
    tables: list[Table]
    figures: list[tuple[str, str]]
    clips: list[dict[str, Any]]


def section_of(results: Mapping[str, Any], clips: Sequence[dict[str, Any]] = ()) -> Section:
    """A benchmark's results and clips as a section."""
    return Section(title_of(results), facts_of(results), tables_of(results), figures_of(results), list(clips))


def title_of(results: Mapping[str, Any]) -> str:
    """A benchmark's name in print."""
    return {"wearvox": "WearVox", "vgbench": "VGBench", "asr": "Transcription"}[results["benchmark"]]


def facts_of(results: Mapping[str, Any]) -> str:
    """What was run on what, in a sentence."""
    first = results["systems"][0]
    facts = (
        f"{results['items']} items of {results['data']}; model {first['identity']['model']}, weights "
        f"{first['identity']['weights']}; prompts {results['prompts']}; greedy, at most "
        f"{first['generation'].get('max_new_tokens', '-')} new tokens; {first['errors']} items failed."
    )
    notes = results.get("notes") or {}
    if notes.get("rows_left_out"):
        facts += f" {notes['rows_left_out']} rows were left out, the first: {notes['left_out_because'][0]}."
    if notes.get("grounded_without_search_results"):
        facts += f" {notes['grounded_without_search_results']} grounded questions have no search results."
    return facts


def render_html(title: str, sections: Sequence[Section], lead: Sequence[Table] = (), intro: str = "") -> str:
    """One page without a single outside reference."""
    template = Environment(autoescape=True).from_string(_TEMPLATE)
    return template.render(title=title, intro=intro, sections=sections, lead=lead, mark=MARK)


def render_markdown(title: str, sections: Sequence[Section], lead: Sequence[Table] = ()) -> str:
    """The page's tables as Markdown."""
    parts = [f"# {title}", *(table.markdown() for table in lead)]
    for section in sections:
        parts += [f"## {section.title}", section.facts, *(table.markdown() for table in section.tables)]
    return "\n\n".join(parts)


def write_run(folder: str | Path, results: Mapping[str, Any], clips: Sequence[dict[str, Any]]) -> Path:
    """Write results.json, clips.json, report.md and report.html of a run; returns the page's path."""
    root = Path(folder)
    section = section_of(results, clips)
    title = f"WearLlama on {section.title}"
    write_json(root / RESULTS, results)
    write_json(root / CLIPS, list(clips))
    write_text(root / "report.md", render_markdown(title, [section]))
    write_text(root / "report.html", render_html(title, [section]))
    return root / "report.html"


def read_run(folder: str | Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Results and clips of a run; ValueError where the folder holds none."""
    root = Path(folder)
    if not (root / RESULTS).is_file():
        raise ValueError(f"{root} holds no {RESULTS}: evaluate first")
    clips = json.loads((root / CLIPS).read_text(encoding="utf-8")) if (root / CLIPS).is_file() else []
    return json.loads((root / RESULTS).read_text(encoding="utf-8")), clips
