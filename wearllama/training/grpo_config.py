"""Settings of GRPO, in the vocabulary of TRL's ``GRPOConfig`` where it has the word; the rest is marked as ours."""

from dataclasses import dataclass, field
from typing import Literal

from wearllama.training.grpo_loss import LossSettings, LossType, ScaleRewards

Reference = Literal["auto", "lora_off", "frozen_copy"]


@dataclass(kw_only=True)
class RolloutConfig:
    """Where completions come from (ours)."""

    engine: Literal["local", "openai"] = "local"
    """``local``: the policy itself, one prefix for all its completions. ``openai``: a server with the OpenAI API."""
    max_rows: int = 128
    """Completions that are sampled together."""
    base_url: str = "http://127.0.0.1:8000/v1"
    model: str = "wearllama"
    """Name that the server knows the model by."""
    timeout_s: float = 120.0
    retries: int = 6
    """Attempts after the first one, for requests that failed for a passing reason."""
    sync_url: str | None = None
    """Gets a POST {"path": folder} whenever the weights have changed; without it a server would fall behind."""
    sync_dir: str | None = None
    """Folder both machines see, for the weights that ``sync_url`` names; run_dir/sync if not given."""

    def __post_init__(self) -> None:
        if self.max_rows < 1 or self.timeout_s <= 0:
            raise ValueError(f"rollout.max_rows {self.max_rows}, timeout_s {self.timeout_s}: wanted above zero")
        if self.engine == "openai" and self.sync_url is None:
            raise ValueError("rollout.engine=openai needs rollout.sync_url: a server that keeps old weights samples "
                             "from another policy than the one that is trained")  # fmt: skip


@dataclass(kw_only=True)
class GrpoConfig:
    """What is sampled, how it is judged, and the loss."""

    # --- words of TRL
    num_generations: int = 8
    """K: completions of EACH side of a pair (of each row that is no pair)."""
    max_completion_length: int = 96
    temperature: float = 1.0
    """Of sampling, and of the log-probabilities that are trained."""
    top_p: float = 1.0
    """1 only: a truncated distribution is not the one whose gradient is taken."""
    num_iterations: int = 1
    """Updates from one set of completions."""
    beta: float = 0.0
    """Weight of the KL divergence from the reference (estimator k3)."""
    use_bias_correction_kl: bool = True
    """Times the ratio, whose gradient makes that of the KL term unbiased (DeepSeek-V3.2); TRL's default as well."""
    epsilon: float = 0.2
    epsilon_high: float | None = None
    """Upper clip; None is ``epsilon``."""
    loss_type: LossType = "sum"
    """``grpo``, ``dapo``, ``dr_grpo``, or ``sum``: a sequence's sum over ``loss_constant`` (ours)."""
    scale_rewards: ScaleRewards = "group"
    reward_weights: dict[str, float] = field(default_factory=lambda: {"action": 1.0})
    """Reward functions by name (wearllama/training/rewards.py) and their weights."""
    mask_truncated_completions: bool = False
    """Completions that were cut at ``max_completion_length`` give no gradient."""
    disable_dropout: bool = True
    seed: int = 1
    """Of the order of groups and of sampling; how rows are rendered and a fresh LoRA begins is train.seed's."""

    # --- ours
    loss_constant: float = 1.0
    """Of ``loss_type=sum``: tokens that a completion counts as, whatever its length."""
    pairing: Literal["pair", "none"] = "pair"
    """``pair``: both sides of a counterfactual pair form one group. ``none``: every side is a group of its own."""
    groups_per_step: int = 8
    """Live groups that a step of one rank wants."""
    dynamic_sampling: bool = True
    """Draw further groups in place of those without a difference in reward (DAPO)."""
    max_draws: int = 4
    """With dynamic sampling: at most so many times ``groups_per_step`` groups are sampled a step."""
    micro_completions: int = 64
    """Completions a backward pass at most (one condition's stay together)."""
    share_prefix: bool = True
    """Also under the gradient, a condition's prompt passes the decoder once, not K times."""
    reference: Reference = "auto"
    """With ``beta``: LoRA switched off (fresh LoRA, nothing else trained), or a copy of the starting weights."""
    weights: dict[str, float] = field(default_factory=dict)
    """Times an epoch that a task's groups are drawn; 1 where a task is not named, 0 leaves it out."""
    rollout: RolloutConfig = field(default_factory=RolloutConfig)

    def __post_init__(self) -> None:
        for name in ("num_generations", "max_completion_length", "num_iterations", "groups_per_step", "max_draws",
                     "micro_completions"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"grpo.{name} is {getattr(self, name)}, wanted at least 1")
        if self.num_generations < 2 and self.pairing == "none":
            raise ValueError("grpo.num_generations is 1 with grpo.pairing=none: a group of one has no difference")
        for name in ("temperature", "epsilon", "loss_constant"):
            if getattr(self, name) <= 0:
                raise ValueError(f"grpo.{name} is {getattr(self, name)}, wanted above 0")
        if self.top_p != 1.0:
            raise ValueError(f"grpo.top_p is {self.top_p}, wanted 1: the gradient is that of the whole distribution")
        if self.beta < 0 or (self.epsilon_high is not None and self.epsilon_high <= 0):
            raise ValueError(f"grpo.beta {self.beta} or epsilon_high {self.epsilon_high} is too small")
        if not self.reward_weights:
            raise ValueError("grpo.reward_weights is empty, wanted at least one reward function")
        for task, weight in self.weights.items():
            if not 0 <= weight <= 100:
                raise ValueError(f"grpo.weights[{task!r}] is {weight}, wanted 0 to 100")

    def loss_settings(self) -> LossSettings:
        """What the loss reads."""
        return LossSettings(
            loss_type=self.loss_type, epsilon=self.epsilon, epsilon_high=self.epsilon_high, beta=self.beta,
            max_completion_length=self.max_completion_length, loss_constant=self.loss_constant,
            use_bias_correction_kl=self.use_bias_correction_kl,
        )  # fmt: skip
