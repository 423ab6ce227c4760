"""Figures that the papers print, to stand beside ours and marked as published. Never measured here."""

from typing import NamedTuple

WEARVOX_COLUMNS = ("search QA", "closed-book QA", "tool calling", "side-talk", "micro-average")
WEARVOX_SOURCE = "arXiv 2601.02391, Tables 2 and 4; QA by an LLM judge, tool calls by syntax tree"
WEARVOX: dict[str, tuple[float, ...]] = {
    "Gemma 3n": (29.4, 20.4, 5.7, 59.9, 29.7),
    "Kimi-Audio": (10.1, 31.5, 63.0, 47.0, 43.6),
    "Qwen2.5-Omni": (35.8, 29.8, 7.3, 60.4, 33.1),
    "GPT-4o Audio": (50.5, 59.4, 8.9, 66.0, 43.1),
    "GPT-5 + Whisper": (57.8, 70.6, 35.7, 73.8, 57.8),
    "Gemini 2.5 Flash": (49.0, 46.8, 44.4, 88.2, 59.8),
    "Gemini 2.5 Flash Thinking": (48.8, 61.4, 68.1, 91.4, 71.3),
    "SC WearLlama": (43.3, 42.5, 58.5, 85.4, 61.9),
    "MC WearLlama": (43.3, 42.2, 63.9, 93.9, 66.4),
}
"""Per cent, columns as in WEARVOX_COLUMNS."""
WEARVOX_COUNTS = (547, 588, 1125, 1082)
"""Items of the first four columns; they reproduce the printed micro-averages."""

WEARVOX_NOISE_SOURCE = "arXiv 2601.02391, Table 5"
WEARVOX_NOISE: dict[str, tuple[float, float, int]] = {
    "Construction Noise (15m)": (58.9, 70.1, 358),
    "Lawnmower (1m)": (70.6, 70.6, 68),
    "Loud Singing": (72.5, 82.5, 40),
    "Music": (66.0, 67.9, 106),
    "Normal Conversation (1m)": (63.0, 66.5, 630),
    "Other": (68.3, 75.4, 167),
    "Quiet Office": (68.4, 68.4, 624),
    "Quiet Whisper (1m)": (61.4, 64.9, 57),
    "Rustling Leaves": (59.1, 65.3, 470),
    "Vacuum Cleaning": (62.0, 69.0, 71),
    "Vehicles (15m)": (64.9, 69.9, 402),
    "Wind": (23.8, 33.3, 42),
}
"""SC WearLlama, MC WearLlama (per cent), items."""

WEARVOX_TTFT_MS: dict[str, tuple[int, int, int, int]] = {
    "Gemini 2.5 Flash": (1527, 1369, 1405, 1307),
    "Gemini 2.5 Flash Thinking": (9195, 2288, 2084, 2177),
    "GPT-4o Audio": (1868, 1220, 1290, 1341),
}
"""Mean milliseconds: search QA, closed-book QA, tool calling, side-talk (Table 3)."""


class VGBenchRow(NamedTuple):
    """Per cent; None where the paper prints nothing."""

    switch_mute: float | None
    same_speaker: float | None
    text_only: float | None
    self_talk: float | None
    side_talk: float | None


VGBENCH_COLUMNS = ("switch mute", "same-speaker tool", "text-only tool", "self-talk mute", "side-talk")
VGBENCH_SOURCE = "arXiv 2609.32536; side-talk's free answers by an LLM judge; mono recordings"
VGBENCH: dict[str, VGBenchRow] = {
    "Kimi-Audio-7B (raw)": VGBenchRow(14.0, 53.0, 44.0, None, None),
    "Step-Audio-R1.1 (raw)": VGBenchRow(1.0, 96.0, 97.0, None, None),
    "Qwen3-Omni-30B (raw)": VGBenchRow(None, None, None, 57.0, 39.0),
    "AURA (on Qwen3-Omni)": VGBenchRow(0.0, None, None, 63.2, 46.6),
    "VoxGate SFT": VGBenchRow(91.3, 100.0, 100.0, 52.0, 68.4),
    "VoxGate SFT + pair GRPO": VGBenchRow(92.5, 100.0, 100.0, 60.0, 70.9),
}

VGBENCH_FACTORS = {
    "A-near-600": ("1.2 %", "-"), "B-near-600": ("50.0 %", "53.8 %"), "A-far-600": ("60.0 %", "60.0 %"),
}  # fmt: skip
"""Mute rates of VoxGate SFT and GRPO that the text prints (same source); the gap is "fixed" there, taken as 600 ms."""
