"""What a pre-training run folder remembers: whose run it is, where it stopped, and its log up to there."""

import json
from pathlib import Path

from wearllama.atomic import write_text
from wearllama.training.checkpoint import last_complete_checkpoint, mark_complete, remove_incomplete_checkpoints

LOG = "log.jsonl"
"""One line a logged step: loss, the objective's figures, throughput."""
IDS = "rows-rank{rank}.jsonl"
"""One line a batch: the ids that a rank trained on (``train.log_ids``)."""
FINGERPRINT = "fingerprint.txt"


def prepare(run_dir: Path, fingerprint: str | None) -> None:
    """Make a run folder ready to go on: claimed, without broken checkpoints, its log cut back to the last whole one.

    Args:
        run_dir: folder of the run.
        fingerprint: of what the run is; None for runs whose settings may change between calls.

    Raises:
        ValueError: the folder holds a run of another fingerprint.
    """
    if fingerprint is not None:
        note = run_dir / FINGERPRINT
        if note.is_file() and note.read_text().strip() != fingerprint:
            raise ValueError(
                f"{run_dir} holds a run of other settings or data (see {run_dir}/launches): wanted another run_dir"
            )
        write_text(note, fingerprint + "\n")
    if not (run_dir / LOG).is_file():  # written before pre-training marked its checkpoints
        for path in run_dir.glob("checkpoint-*"):
            mark_complete(path, {})
    for broken in remove_incomplete_checkpoints(run_dir):
        print(f"{broken} was cut short and is removed")
    cut_logs(run_dir, last_complete_checkpoint(run_dir))


def announce(checkpoint: Path, world_size: int) -> None:
    """Say where a run goes on, and whether as many ranks do."""
    ranks = len(list(checkpoint.glob("rng_state*.pth")))
    print(f"going on from {checkpoint}")
    if ranks != world_size:
        print(f"{ranks} ranks wrote it, {world_size} go on: rows are dealt out otherwise from here, and the rows of a "
              f"step are {world_size}/{ranks} of what they were")  # fmt: skip


def cut_logs(run_dir: Path, checkpoint: Path | None) -> None:
    """Drop the lines behind ``checkpoint``, whose steps are taken again, from the log and from rows' ids."""
    for path in (run_dir / LOG, *run_dir.glob(IDS.format(rank="*"))):
        cut_log(path, checkpoint)


def cut_log(path: Path, checkpoint: Path | None) -> None:
    """Drop a log's lines behind ``checkpoint``. Starts the log where there is none."""
    last = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            if json.loads(line)["step"] <= last:
                kept.append(line)
        except json.JSONDecodeError:  # the last line of a run that was killed while writing it
            continue
    write_text(path, "".join(f"{line}\n" for line in kept))
