"""Trainer callbacks: leave with a checkpoint when told to stop, and mark whole checkpoints."""

import atexit
import multiprocessing.util  # whose own clean-up at exit is then registered before kill_workers, and runs after it
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ProgressCallback

from wearllama.training.checkpoint import mark_complete
from wearllama.training.staging import Stager

ONE_KEY_S = 2.0
"""Ctrl-C under torchrun reaches a rank twice, from the terminal and from torchrun; later than this it is a new one."""


class GracefulStop(TrainerCallback):
    """SIGTERM (preemption) or Ctrl-C: finish the step, save a checkpoint, stop. A second Ctrl-C stops at once.

    A repeated SIGTERM is not a second thought: Slurm sends it to every process of a job, torchrun hands its own on.
    Training runs inside ``with stop:``, which gives the signals back however it ends.
    """

    def __init__(self, every: int = 1) -> None:
        """``every``: leave only after a step whose number this divides."""
        self.every = every
        self.stopped_by: int | None = None
        """The signal that ended training early, on every rank; None while and after an ordinary run."""
        self._received = 0
        self._interrupted_at: float | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "GracefulStop":
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, self._receive)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        number = self._agreed(args.device)
        if number and state.global_step % self.every == 0:
            self.stopped_by = number
            control.should_save = True
            control.should_training_stop = True

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if number == signal.SIGINT:
            if self._interrupted_at is not None and now - self._interrupted_at > ONE_KEY_S:
                raise KeyboardInterrupt
            self._interrupted_at = self._interrupted_at or now
        if not self._received:
            self._received = number
            print(f"\n{signal.Signals(number).name}: finishing this step and saving a checkpoint", file=sys.stderr)

    def _agreed(self, device: torch.device) -> int:
        """The signal any rank received, so that all save and leave after the same step."""
        if not (dist.is_available() and dist.is_initialized()):
            return self._received
        number = torch.tensor(self._received, device=device)
        dist.all_reduce(number, op=dist.ReduceOp.MAX)
        return int(number)


class MarkCheckpoints(TrainerCallback):
    """Write the marker of a whole checkpoint once every rank has written its part; where they are staged, move it."""

    def __init__(self, stager: Stager | None = None) -> None:
        self.stager = stager

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.stager is not None:
            self.stager.check()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if dist.is_available() and dist.is_initialized():
            dist.barrier()
        if self.stager is not None:
            self.stager.hand_over(state.global_step)
        elif state.is_world_process_zero:
            assert args.output_dir is not None
            mark_complete(Path(args.output_dir) / f"checkpoint-{state.global_step}", {"step": state.global_step})


class OwnIntervals(TrainerCallback):
    """A resumed run saves, logs and evaluates as often as this call says; the library goes on with the checkpoint's."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        state.compute_steps(args, state.max_steps)


class ProgressBar(ProgressCallback):
    """The library's bar without its lines: the run's own table has them."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        pass


def init_worker(worker_id: int) -> None:
    """Loader workers have one thread; the training process decides when to stop, and the loader ends them by an event.

    Ctrl-C reaches every process of a terminal, and schedulers send SIGTERM to every process of a job: a worker that
    died of it would take the step with it that is still to be finished.
    """
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@atexit.register
def kill_workers() -> None:
    """End what an error left of the loaders: workers ignore the SIGTERM after which Python would wait for them."""
    for child in multiprocessing.active_children():
        if child.daemon:
            child.kill()
