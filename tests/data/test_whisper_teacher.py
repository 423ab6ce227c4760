"""The Whisper conversion on a tiny model written in CTranslate2's format here; the real one in a slow test."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from wearllama.data.assets import cache_root, is_complete, load_registry
from wearllama.data.whisper_teacher import WhisperTeacher, convert_encoder, load_teacher, read_ctranslate2


@pytest.fixture(scope="module")
def tiny() -> WhisperEncoder:
    torch.manual_seed(0)
    config = WhisperConfig(
        d_model=64, encoder_layers=2, encoder_attention_heads=1, encoder_ffn_dim=96, decoder_layers=0, num_mel_bins=80
    )
    encoder = WhisperEncoder(config).eval()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return encoder


def _write_ctranslate2(encoder: WhisperEncoder, path: Path) -> None:
    """The inverse of the conversion: the encoder as a CTranslate2 binary (fp16 matrices would lose bits: fp32)."""
    state = encoder.state_dict()
    variables: dict[str, np.ndarray] = {"encoder/position_encodings/encodings": state["embed_positions.weight"].numpy()}
    for module in ("conv1", "conv2"):
        for field in ("weight", "bias"):
            variables[f"encoder/{module}/{field}"] = state[f"{module}.{field}"].numpy()
    norms = {"layer_norm": "layer_norm"}
    for layer in range(2):
        ours, theirs = f"layer_{layer}", f"layers.{layer}"
        norms |= {f"{ours}/self_attention/layer_norm": f"{theirs}.self_attn_layer_norm"}
        norms |= {f"{ours}/ffn/layer_norm": f"{theirs}.final_layer_norm"}
        linears = {"self_attention/linear_1": "self_attn.out_proj", "ffn/linear_0": "fc1", "ffn/linear_1": "fc2"}
        for name, module in linears.items():
            for field in ("weight", "bias"):
                variables[f"encoder/{ours}/{name}/{field}"] = state[f"{theirs}.{module}.{field}"].numpy()
        q, k, v = (state[f"{theirs}.self_attn.{part}_proj.weight"].numpy() for part in "qkv")
        q_bias, v_bias = (state[f"{theirs}.self_attn.{part}_proj.bias"].numpy() for part in "qv")
        variables[f"encoder/{ours}/self_attention/linear_0/weight"] = np.concatenate([q, k, v])
        variables[f"encoder/{ours}/self_attention/linear_0/bias"] = np.concatenate([q_bias, 0 * q_bias, v_bias])
    for name, module in norms.items():
        variables[f"encoder/{name}/gamma"] = state[f"{module}.weight"].numpy()
        variables[f"encoder/{name}/beta"] = state[f"{module}.bias"].numpy()
    with path.open("wb") as out:
        out.write(struct.pack("<I", 6) + _string("WhisperSpec") + struct.pack("<II", 3, len(variables)))
        for name, values in variables.items():
            data = np.ascontiguousarray(values, "<f4").tobytes()
            out.write(_string(name) + struct.pack("<B", values.ndim) + struct.pack(f"<{values.ndim}I", *values.shape))
            out.write(struct.pack("<BI", 0, len(data)) + data)


def _string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def test_conversion_gives_the_same_encoder(tiny, tmp_path):
    _write_ctranslate2(tiny, tmp_path / "model.bin")
    teacher = load_teacher(convert_encoder(tmp_path, tmp_path / "out"))
    mel_BFT = torch.randn(1, 80, 3000)
    with torch.no_grad():
        torch.testing.assert_close(teacher.encode(mel_BFT), tiny(mel_BFT).last_hidden_state, atol=1e-5, rtol=1e-5)


def test_short_clip_gives_fifty_frames_a_second(tiny):
    teacher = WhisperTeacher(tiny)
    for samples in (640, 16000, 16001, 31999):
        assert teacher(torch.randn(2, samples)).shape == (2, samples // 320, 64)


def test_log_mel_is_whispers_own(tiny):
    from transformers import WhisperFeatureExtractor

    audio_N = torch.randn(16000 * 2, generator=torch.Generator().manual_seed(1)) * 0.1
    padded_BN = torch.nn.functional.pad(audio_N, (0, 480_000 - len(audio_N)))[None]
    wanted = WhisperFeatureExtractor()(audio_N.numpy(), sampling_rate=16000, return_tensors="pt").input_features
    torch.testing.assert_close(WhisperTeacher(tiny).log_mel(padded_BN), wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("samples", [0, 320, 480_001])
def test_length_limits(tiny, samples):
    with pytest.raises(ValueError, match=r"\.04 to 30 s"):
        WhisperTeacher(tiny)(torch.zeros(1, samples))


def test_other_and_truncated_files_are_named(tiny, tmp_path):
    (tmp_path / "other.bin").write_bytes(b"RIFF0000")
    with pytest.raises(ValueError, match=r"other\.bin: CTranslate2 binary version"):
        read_ctranslate2(tmp_path / "other.bin")
    _write_ctranslate2(tiny, tmp_path / "model.bin")
    (tmp_path / "cut.bin").write_bytes((tmp_path / "model.bin").read_bytes()[:50_000])
    with pytest.raises(ValueError, match=r"cut\.bin: not a complete"):
        read_ctranslate2(tmp_path / "cut.bin")
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        load_teacher(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(
    not is_complete(cache_root() / "whisper_base", load_registry()["whisper_base"]), reason="not fetched"
)
def test_real_weights_equal_ctranslate2():
    ctranslate2 = pytest.importorskip("ctranslate2")
    from wearllama.data.voices import synthesize

    teacher = load_teacher()
    audio_N = torch.from_numpy(synthesize("What is the weather in Paris?", "pico/en-US"))
    mel_BFT = teacher.log_mel(torch.nn.functional.pad(audio_N, (0, 480_000 - len(audio_N)))[None])
    model = ctranslate2.models.Whisper(str(cache_root() / "whisper_base"), compute_type="float32", intra_threads=1)
    theirs = np.array(model.encode(ctranslate2.StorageView.from_array(mel_BFT.numpy())))
    with torch.no_grad():
        np.testing.assert_allclose(teacher.encode(mel_BFT).numpy(), theirs, atol=5e-3)
