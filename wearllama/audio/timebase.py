"""The one time base: samples -> mel frames -> encoder frames -> embeddings (contract 5).

Frame t of the front end covers samples ``[160 t, 160 t + 400)``: no centre padding, so a frame never depends on
what a batch adds behind a clip.  The encoder takes eight mel frames (80 ms) per embedding and pads the last group,
so that every sample reaches an embedding.  A clip shorter than one 25 ms window is padded up to one window: 5 ms and
80 ms both give one embedding a channel.
"""

SAMPLE_RATE = 16_000
WINDOW_SAMPLES = 400  # 25 ms
HOP_SAMPLES = 160  # 10 ms
MEL_FRAMES_PER_EMBEDDING = 8  # 80 ms: 12.5 embeddings a second and channel


def num_mel_frames(num_samples: int) -> int:
    """Mel frames of ``num_samples`` at 16 kHz; at least one for any non-empty clip.

    The last, partly filled window is zero-padded: frames start every 10 ms while a sample is left to cover.
    """
    if num_samples <= 0:
        raise ValueError(f"a clip needs at least one sample, found {num_samples}")
    return -(-max(num_samples - (WINDOW_SAMPLES - HOP_SAMPLES), 1) // HOP_SAMPLES)


def num_encoder_frames(num_mel: int) -> int:
    """Encoder frames (80 ms each) of ``num_mel`` mel frames; the last group of eight may be padded."""
    if num_mel <= 0:
        raise ValueError(f"an encoder input needs at least one mel frame, found {num_mel}")
    return -(-num_mel // MEL_FRAMES_PER_EMBEDDING)


def num_embeddings(num_samples: int, channels: int) -> int:
    """Decoder positions that a clip takes: encoder frames times encoded channels (1 for SC, 2 for MC)."""
    if channels not in (1, 2):
        raise ValueError(f"the model encodes 1 channel (SC) or 2 (MC), asked for {channels}")
    return channels * num_encoder_frames(num_mel_frames(num_samples))
