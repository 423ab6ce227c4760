"""A moving average of the trained weights (Polyak and Juditsky 1992), kept with every checkpoint."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from wearllama.training.checkpoint import last_complete_checkpoint

EMA = "ema.safetensors"


class MovingAverage(TrainerCallback):
    """Averages after every step. Put before the callback that marks checkpoints as whole: it writes into them.

    The decay grows as (1 + step) / (10 + step) up to ``decay``, so that the random start is forgotten.
    """

    def __init__(self, model: nn.Module, decay: float, staged: Path | None = None) -> None:
        """
        Args:
            model: whose trained weights are averaged.
            decay: of the average, below 1.
            staged: folder that checkpoints are written into where it is not the run's.
        """
        self.decay = decay
        self.model = model
        self.staged = staged
        self.average: dict[str, Tensor] = {}

    @torch.no_grad()
    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.average = {name: parameter.detach().float().clone() for name, parameter in self._trained()}
        if state.global_step:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            assert folder == last_complete_checkpoint(str(args.output_dir)), folder
            for name, value in load_file(folder / EMA).items():
                self.average[name].copy_(value)

    @torch.no_grad()
    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        decay = min(self.decay, (1 + state.global_step) / (10 + state.global_step))
        for name, parameter in self._trained():
            self.average[name].lerp_(parameter.detach().float(), 1 - decay)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            folder = (self.staged or Path(str(args.output_dir))) / f"checkpoint-{state.global_step}"
            save_file({name: value.cpu().contiguous() for name, value in self.average.items()}, folder / EMA)

    @torch.no_grad()
    def apply(self) -> None:
        """Put the average into the model."""
        for name, parameter in self._trained():
            parameter.copy_(self.average[name])

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]
