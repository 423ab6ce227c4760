"""Checkpoints beside training: written to a fast local folder in step, moved to the run's folder by a thread.

A step waits for memory or a local disk, not for the network file system that holds the run. Files are moved whatever is
in them, so this serves every ``train.parallel``. A checkpoint counts once its marker is written, after the last byte of
every node, and only then are older ones removed: a kill at any moment leaves the one before.
"""

import hashlib
import os
import shutil
import threading
import time
from pathlib import Path
from types import TracebackType

from wearllama.training.checkpoint import COMPLETE, complete_checkpoints, mark_complete

ALL_NODES_S = 3600.0
"""How long the first node waits for the files of the others."""


class Stager:
    """Moves the checkpoints of one run; every process has one, the first of each node does the work."""

    def __init__(self, run_dir: Path, staging: Path, keep: int) -> None:
        """
        Args:
            run_dir: where checkpoints belong, seen by all nodes.
            staging: folder of this node, ``/dev/shm`` say, with room for one checkpoint.
            keep: whole checkpoints that stay.
        """
        self.run_dir, self.keep = run_dir, keep
        name = hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:12]
        self.folder = staging / f"wearllama-{name}"
        """Takes the run's place while a checkpoint is written."""
        self._moves = int(os.environ.get("LOCAL_RANK", "0")) == 0
        self._node, self._nodes = (int(os.environ.get(f"GROUP_{name}", "0")) for name in ("RANK", "WORLD_SIZE"))
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        if self._moves:
            shutil.rmtree(self.folder, ignore_errors=True)  # of a call that was killed

    def hand_over(self, step: int) -> None:
        """Begin to move a checkpoint. Every process calls it, after all have written their part."""
        self.wait()
        if self._moves:
            self._thread = threading.Thread(target=self._run, args=(step,), name=f"move-{step}", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Return when nothing is being moved; raises what went wrong."""
        if self._thread is not None:
            self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise what went wrong in a move, without waiting for one."""
        if self._error is not None:
            raise self._error

    def __enter__(self) -> "Stager":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """The last checkpoint is whole before the process ends, however training ended."""
        if kind is None:
            self.wait()
        elif self._thread is not None:
            self._thread.join()

    def _run(self, step: int) -> None:
        try:
            self._move(step)
        except BaseException as error:  # the training thread raises it
            self._error = error

    def _move(self, step: int) -> None:
        source, target = (folder / f"checkpoint-{step}" for folder in (self.folder, self.run_dir))
        shutil.copytree(source, target, dirs_exist_ok=True)
        shutil.rmtree(source)
        if self._nodes > 1:
            (target / f".node-{self._node}").touch()
        if self._node == 0:
            self._await_nodes(target)
            mark_complete(target, {"step": step})
            self._prune()

    def _await_nodes(self, target: Path) -> None:
        notes = [target / f".node-{node}" for node in range(self._nodes)] if self._nodes > 1 else []
        deadline = time.monotonic() + ALL_NODES_S
        while missing := [note.name for note in notes if not note.exists()]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{target}: no files from {missing} after {ALL_NODES_S:.0f} s")
            time.sleep(0.2)
        for note in notes:
            note.unlink()

    def _prune(self) -> None:
        for old in complete_checkpoints(self.run_dir)[: -self.keep]:
            (old / COMPLETE).unlink()  # first, so that what is half removed counts no more
            shutil.rmtree(old)
