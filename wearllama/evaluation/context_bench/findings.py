"""findings.md in the form of the benchmark's own, summary.json, and one line a trial in transcripts.jsonl."""

import datetime
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wearllama.atomic import write_json, write_text
from wearllama.data.prompts import content_hash
from wearllama.evaluation import published
from wearllama.evaluation.context_bench.run import BenchRun
from wearllama.evaluation.context_bench.scoring import (
    Agreement,
    Primary,
    Trial,
    agreement,
    by,
    code_disagreements,
    pair_consistency,
    primary_score,
    recalls,
)
from wearllama.evaluation.context_bench.tasks import BASELINE, LABELS, SCORED
from wearllama.evaluation.intervals import Rate, rate_of
from wearllama.evaluation.tables import MARK, Table, cell

FINDINGS, SUMMARY, TRANSCRIPTS = "findings.md", "summary.json", "transcripts.jsonl"


def write_findings(folder: str | Path, run: BenchRun) -> Path:
    """Write the three files of a run; returns the path of findings.md."""
    root = Path(folder)
    write_text(root / TRANSCRIPTS, "".join(json.dumps(_row(t), ensure_ascii=False) + "\n" for t in run.trials))
    write_json(root / SUMMARY, summary(run))
    write_text(root / FINDINGS, render_findings(run))
    return root / FINDINGS


def headline(run: BenchRun) -> Table:
    """Primary score and recalls by condition, the published rows below."""
    rows = []
    for name, trials in _by_condition(run.trials).items():
        scored = recalls(trials)
        rows.append((name, _primary(primary_score(*scored.values())), *(cell(r.to_dict()) for r in scored.values())))
    for name, (condition, score) in published.CONTEXT_BENCH.items():
        values = Primary(*(value / 100 for value in score))
        rows.append((f"{condition}: {name}{MARK}", _primary(values), "-", "-"))
    header = ("condition", "primary score", *(f"{label} recall" for label in SCORED))
    note = (
        f"Rank on {BASELINE} only: under a scaffold the wording alone passes, even without a camera. Primary score: "
        f"mean of the two recalls, bootstrap interval; recalls: Wilson. Published: {published.CONTEXT_BENCH_SOURCE}."
    )
    return Table("Wearable Assistant Context Bench", header, rows, note)


def summary(run: BenchRun) -> dict[str, Any]:
    """Every figure of the run, JSON-ready."""
    conditions = _by_condition(run.trials)
    both = agreement(conditions.get(BASELINE, []))
    return {
        "benchmark": "context_bench",
        "trials": len(run.trials),
        "unscored_trials": run.unscored,
        "replies_without_verdict": run.without_verdict,
        "conditions": {name: _figures(trials) for name, trials in conditions.items()},
        "judge_agreement_at_baseline": None if both is None else {
            "fleiss_kappa": None if math.isnan(both.kappa) else both.kappa,
            "observed": both.observed, "trials": both.trials,
        },
        "manifest": manifest(run),
    }  # fmt: skip


def manifest(run: BenchRun) -> dict[str, Any]:
    """What must be equal for two runs to be comparable."""
    return {
        "clone": str(run.clone.root), "tasks": len({t.task.id for t in run.trials}), "subset": run.config.subset,
        "camera": run.config.camera, "sha256": dict(run.clone.hashes), "lock": run.clone.lock_state(),
        "judge_prompt": content_hash(run.prompt), "judge_prompt_is_the_clones": run.prompt == run.clone.judge_prompt,
        "candidate": run.candidate.identity, "generation": run.candidate.generation,
        "judges": {
            name: {"family": role.family, "family_resolution": role.resolution, **role.model.identity,
                   "generation": role.model.generation}
            for name, role in run.judges.items()
        },
        "ranking_condition": BASELINE, "trials_per_cell": 1, "temperature": 0.0,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def render_findings(run: BenchRun) -> str:
    """The report as Markdown, sections in the benchmark's order."""
    conditions = _by_condition(run.trials)
    ranked = conditions.get(BASELINE, [])
    parts = ["# Wearable Assistant Context Bench: Findings"]
    if "judge" not in run.judges:
        parts.append("No judge: answers are logged, nothing is scored; every figure below counts them as wrong.")
    elif run.unscored:
        parts.append(
            f"{run.unscored} of {len(run.trials)} verdicts name no label; they count as wrong and as no label."
        )
    if run.without_verdict:
        parts.append(
            f"{run.without_verdict} of {len(run.trials)} replies of the judge hold no verdict and count as abstain, as "
            "published. Where they are many, the figures below tell of the judge, not of the candidate."
        )
    parts += [
        f"## Benchmark summary\n\n{headline(run).markdown()}",
        f"## Per-subset recall\n\n{_grouped(ranked, lambda t: t.subset, 'Subset')}",
        f"## Per change-type recall\n\n{_pass_rates(ranked)}",
        f"## Contrast pair consistency\n\nPairs of which both pass: {pair_consistency(ranked)}",
        f"## Per-class pass rate by condition\n\n{_class_grid(conditions)}",
        f"## Hedging behavior\n\n{_hedging(ranked)}",
        f"## Code-judge disagreement by scenario\n\n{_counts(code_disagreements(run.trials), 'words and judge')}",
        f"## Inter-judge agreement (cross-LLM)\n\n{_agreement(agreement(ranked))}",
        f"## Scenario-by-condition matrix\n\n{_matrix(run.trials, list(conditions))}",
        f"## Reproducibility manifest\n\n```json\n{json.dumps(manifest(run), indent=2, ensure_ascii=False)}\n```",
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _by_condition(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """In the clone's order, with the ranking condition first."""
    names = sorted(dict.fromkeys(t.condition for t in trials), key=lambda name: name != BASELINE)
    return {name: [t for t in trials if t.condition == name] for name in names}


def _figures(trials: Sequence[Trial]) -> dict[str, Any]:
    primary = primary_score(*recalls(trials).values())
    labels = {label: rate_of(t.label == label for t in trials).to_dict() for label in LABELS}
    return {
        "primary_score": None if primary is None else primary._asdict(),
        "recall": {label: rate_of(t.passed for t in trials if t.task.gold == label).to_dict() for label in LABELS},
        "labels": labels,
        "by_shift_type": {name: rate_of(t.passed for t in some).to_dict()
                          for name, some in by(trials, lambda task: task.shift_type).items()},
        "pairs": pair_consistency(trials).to_dict(),
    }  # fmt: skip


def _row(trial: Trial) -> dict[str, Any]:
    task = trial.task
    return {
        "task_id": task.id, "task_set": task.subset, "pair_id": task.pair_id or None, "condition": trial.condition,
        "gold_label": task.gold, "shift_type": task.shift_type, "domain": task.domain, "difficulty": task.difficulty,
        "turn_1_response": trial.turn_1, "turn_2_response": trial.turn_2, "turn_2_code_signals": dict(trial.signals),
        "turn_2_judge_label": trial.label, "turn_2_judge_rationale": trial.note, "turn_2_passed": trial.passed,
        "turn_2_ranking_judge_label": trial.ranking_label, "turn_2_ranking_judge_rationale": trial.ranking_note,
    }  # fmt: skip


def _primary(score: Primary | None) -> str:
    if score is None:
        return "-"
    return f"{100 * score.value:.1f} % [{100 * score.low:.1f}, {100 * score.high:.1f}]"


def _rows(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table without a title; its sections have headings of their own."""
    return "\n".join(Table("", header, rows).markdown().splitlines()[2:])


def _grouped(trials: Sequence[Trial], key: Callable[[Any], str], title: str) -> str:
    rows = [(name, _primary(primary_score(*recalls(some).values()))) for name, some in by(trials, key).items()]
    return _rows((title, "Mean recall (95 % CI)"), rows)


def _pass_rates(trials: Sequence[Trial]) -> str:
    groups = by(trials, lambda task: task.shift_type).items()
    return _rows(
        ("Change type", "Pass rate (95 % CI)"), [(n, str(rate_of(t.passed for t in some))) for n, some in groups]
    )


def _class_grid(conditions: dict[str, list[Trial]]) -> str:
    rows = []
    for label in LABELS:
        rates = [rate_of(t.passed for t in some if t.task.gold == label) for some in conditions.values()]
        rows.append((label if label in SCORED else f"{label} (auxiliary)", *map(str, rates)))
    return _rows(("Class", *conditions), rows)


def _hedging(trials: Sequence[Trial]) -> str:
    def share(*labels: str) -> Rate:
        return rate_of(t.label in labels for t in trials)

    return (
        f"- Clarification rate: {share('clarify')}\n- Abstention rate: {share('abstain')}\n"
        f"- Coverage (current or prior): {share('current', 'prior')}"
    )


def _counts(counts: dict[str, int], what: str) -> str:
    lines = [f"- {task}: {count} trial(s) where {what} differ" for task, count in sorted(counts.items())]
    return "\n".join(lines) or "None."


def _agreement(both: Agreement | None) -> str:
    if both is None:
        return "No ranking judge in this run (ranking_judge.model=...)."
    kappa = "undefined (one label only)" if math.isnan(both.kappa) else f"{both.kappa:.3f}"
    return (
        f"- Trials with both labels: {both.trials}\n- Observed agreement: {100 * both.observed:.1f} %\n"
        f"- Fleiss' kappa: {kappa}\n\n{_counts(dict(both.differing), 'the judges')}"
    )


def _matrix(trials: Sequence[Trial], conditions: Sequence[str]) -> str:
    cells = {(t.task.id, t.condition): "pass" if t.passed else f"fail ({t.label or 'no label'})" for t in trials}
    gold = {t.task.id: t.task.gold for t in trials}
    rows = [(name, label, *(cells.get((name, c), "-") for c in conditions)) for name, label in gold.items()]
    return _rows(("Scenario", "Target context", *conditions), rows)
