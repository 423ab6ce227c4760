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

WEARVOX_TRANSLATION: dict[str, tuple[float, str]] = {
    "Gemma 3n": (14.8, "*"), "Kimi-Audio": (41.8, "*"), "Qwen2.5-Omni": (43.9, "*"), "GPT-4o Audio": (76.0, ""),
    "GPT-5 + Whisper": (92.9, "+"), "Gemini 2.5 Flash": (50.3, ""), "Gemini 2.5 Flash Thinking": (70.1, ""),
}  # fmt: skip
"""Session score in per cent; ``*``: cut to 30 s, ``+``: reference segmentation and speakers were given."""

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

WEARVOX_NOISE_OTHERS: dict[str, tuple[float, float, float, float]] = {
    "Construction Noise (15m)": (36.9, 47.2, 74.0, 52.0),
    "Lawnmower (1m)": (41.2, 64.7, 79.4, 61.8),
    "Loud Singing": (45.0, 67.5, 80.0, 60.0),
    "Music": (36.8, 70.8, 67.0, 47.2),
    "Normal Conversation (1m)": (42.2, 63.5, 71.1, 55.6),
    "Other": (37.1, 66.5, 72.5, 55.1),
    "Quiet Office": (51.9, 68.1, 76.9, 63.0),
    "Quiet Whisper (1m)": (28.1, 56.1, 77.2, 45.6),
    "Rustling Leaves": (41.7, 54.3, 71.9, 59.4),
    "Vacuum Cleaning": (38.0, 49.3, 70.4, 50.7),
    "Vehicles (15m)": (40.3, 62.9, 73.9, 61.9),
    "Wind": (35.7, 28.6, 40.5, 57.1),
}
"""GPT-4o Audio, Gemini 2.5 Flash, the same thinking, GPT-5 + Whisper (per cent)."""

WEARVOX_LAYOUTS_SOURCE = "arXiv 2601.02391, Table 6: WER on simulated LibriSpeech test-other"
WEARVOX_LAYOUTS: dict[tuple[str, str], float] = {
    ("c_x", "c_x"): 8.58, ("c_x, c_0", "c_0, c_1"): 8.21, ("c_x, c_0", "c_x, c_1"): 8.16,
    ("c_x, c_0", "c_x, c_0"): 7.38,
}  # fmt: skip
"""Word error rate in per cent by (trained on, tested on)."""

WEARVOX_TTFT_MS: dict[str, tuple[int, int, int, int, int]] = {
    "Gemini 2.5 Flash": (1527, 1369, 1405, 1307, 2138),
    "Gemini 2.5 Flash Thinking": (9195, 2288, 2084, 2177, 11321),
    "GPT-4o Audio": (1868, 1220, 1290, 1341, 7523),
}
"""Mean milliseconds: search QA, closed-book QA, tool calling, side-talk, translation (Table 3)."""


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

CONTEXT_BENCH_SOURCE = "the benchmark's README, sweep of 2026-05-06, 166 tasks; percentile bootstrap"
CONTEXT_BENCH: dict[str, tuple[str, tuple[float, float, float]]] = {
    "gemini-2.5-flash, Gemini judge": ("baseline", (69.9, 60.2, 79.4)),
    "gemini-2.5-flash-lite, Gemini judge": ("baseline", (54.1, 45.1, 63.2)),
    "gemini-2.5-flash-lite without camera, Gemini judge": ("baseline", (17.0, 9.5, 24.3)),
    "gemini-2.5-flash, Codex judge": ("baseline", (82.2, 73.0, 89.6)),
    "gemini-2.5-flash-lite, Codex judge": ("baseline", (77.6, 68.2, 86.0)),
    "gemini-2.5-flash-lite without camera, Codex judge": ("baseline", (2.3, 0.0, 6.1)),
}
"""Prompt condition, and primary score with its interval (per cent)."""

VOXEVAL_SOURCE = "arXiv 2501.04962 and its repository's table; spoken answers through Whisper-large-v3"
VOXEVAL: dict[str, tuple[float, ...]] = {
    "SpeechGPT": (0.01, 0.01, 0.00, 0.01, 0.02, 0.00, 0.00, 0.00, 0.01, 0.01, 0.01),
    "TWIST": (4.80, 5.58, 1.16, 3.32, 2.75, 5.16, 3.68, 5.44, 5.03, 4.34, 4.88),
    "SPIRIT-LM": (20.84, 20.96, 20.84, 20.70, 19.66, 20.76, 19.50, 17.88, 19.11, 20.19, 20.44),
    "Moshi": (12.16, 12.21, 11.53, 12.98, 11.92, 12.05, 10.18, 6.09, 10.13, 10.51, 11.87),
    "GLM-4-Voice": (37.63, 37.64, 36.42, 36.77, 37.64, 38.15, 36.95, 33.45, 34.69, 37.28, 36.43),
    "Whisper + Llama-3.1-8B": (55.25,),
}
"""Per cent, in the order of the eleven settings; only alloy of the cascade."""
