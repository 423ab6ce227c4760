"""The decoder fed piece by piece: buffers with room, layers written out, products by blocks, and Llama 4's chunks."""

import copy

import pytest
import torch
from tiny_wearllama import ENCODER, HEARD, build, clip
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from wearllama.modeling import llama_steps
from wearllama.modeling.kv_cache import RoomyLayer, make_room
from wearllama.modeling.modeling_wearllama import decoder_body
from wearllama.modeling.prompt_cache import PromptCache
from wearllama.modeling.streaming import StreamingSession

STREAMING = {**ENCODER, "causal": True, "contexts": [[70, 6], [70, 0]]}
LLAMA4 = {
    "model_type": "llama4_text", "hidden_size": 32, "intermediate_size": 32, "intermediate_size_mlp": 64,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4,
    "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "use_qk_norm": True, "max_position_embeddings": 2048,
}  # fmt: skip


@torch.no_grad()
def whole_clip(processor, model, audio, tokens=8):
    """Reply and first-token logits of the whole clip, without a cache of ours."""
    batch = processor([HEARD], [audio])
    ids = model.generate(**batch, max_new_tokens=tokens, do_sample=False)[0, batch["input_ids"].shape[1] :]
    return ids.tolist(), model(**batch, logits_to_keep=1).logits[0, -1]


def heard(processor, model, audio, piece=4_000, **settings):
    session = StreamingSession(model, processor, HEARD, max_new_tokens=8, **settings)
    for part in torch.as_tensor(audio).split(piece, dim=1):
        session.push(part)
    return session


@pytest.mark.parametrize("chunk", [16, 37, 8192])
def test_llama4_streams_across_its_attention_chunks(chunk):
    processor, model = build(
        encoder_config=STREAMING, decoder_config=LLAMA4 | {"attention_chunk_size": chunk}, projector={"causal": True}
    )
    assert set(model.config.decoder_config().layer_types) == {"full_attention", "chunked_attention"}
    audio = clip(2.9, seed=chunk)
    ids, logits_V = whole_clip(processor, model, audio)
    session = heard(processor, model, audio)
    before = session.num_positions
    asked = session.p_mute()
    assert session.num_positions == before and session.p_mute() == pytest.approx(asked, abs=1e-9)
    session.end()
    torch.testing.assert_close(session._logits_V, logits_V, atol=1e-4, rtol=0)
    assert session.finish().ids == ids


def test_llama4_prompts_are_shared():
    processor, model = build(encoder_config=STREAMING, decoder_config=LLAMA4 | {"attention_chunk_size": 16})
    prompts = PromptCache(model)
    sounds = [clip(1.2, seed) for seed in (1, 2)]
    alone = [heard(processor, model, audio).finish().ids for audio in sounds]
    sessions = [heard(processor, model, audio, prompts=prompts) for audio in sounds]
    assert [session.finish().ids for session in sessions] == alone


@torch.inference_mode()
def test_rooms_hold_what_a_plain_cache_holds():
    torch.manual_seed(0)
    plain, roomy = DynamicCache(), DynamicCache()
    plain.update(torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4), 0)
    roomy.layers = [copy.deepcopy(plain.layers[0])]
    make_room(roomy, 3)
    layer = roomy.layers[0]
    assert type(layer) is RoomyLayer and type(plain.layers[0]) is DynamicLayer
    place = layer.keys.data_ptr()
    for count in (2, 1, 20, 1):  # the third finds no room
        new = torch.randn(2, 1, 2, count, 4)
        for cache in (plain, roomy):
            cache.update(*new, 0)
        torch.testing.assert_close(layer.keys, plain.layers[0].keys)
        torch.testing.assert_close(layer.values, plain.layers[0].values)
        assert (layer.keys.data_ptr() != place) is (count == 20)  # written in place while there is room
        place = layer.keys.data_ptr()
        for cache in (plain, roomy):
            cache.crop(-1)
        assert roomy.get_seq_length() == plain.get_seq_length()
    copied = copy.deepcopy(roomy)
    copied.update(*torch.randn(2, 1, 2, 1, 4), 0)
    torch.testing.assert_close(layer.keys, plain.layers[0].keys)
    assert copied.get_seq_length() == roomy.get_seq_length() + 1


@pytest.fixture(scope="module")
def plain_llama():
    return build(encoder_config=STREAMING)


@torch.inference_mode()
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(2, 96, 64), (7, 48, 192), (13, 320, 128), (5, 48, 80)])
def test_products_by_blocks_are_the_layers(rows, inputs, outputs, monkeypatch):
    torch.manual_seed(0)
    layer, x_1PE = torch.nn.Linear(inputs, outputs, bias=False), torch.randn(1, rows, inputs)
    wanted = layer(x_1PE)
    called = []
    layer.register_forward_hook(lambda *_: called.append(True))
    torch.testing.assert_close(llama_steps._product(layer, x_1PE), wanted, atol=1e-5, rtol=0)
    assert bool(called) is (outputs % llama_steps.BLOCK > 0 or not torch.backends.mkl.is_available())


@torch.inference_mode()
def test_layers_written_out_equal_transformers(plain_llama, monkeypatch):
    processor, model = plain_llama
    assert llama_steps.fits(model.decoder.model)
    ids = processor.tokenizer.encode("what is the weather in Boston tomorrow, and should I take an umbrella with me?")
    found = []
    for own in (True, False):
        monkeypatch.setattr(llama_steps, "fits", lambda _, own=own: own)
        called = []
        handle = model.decoder.model.register_forward_hook(lambda *_, called=called: called.append(True))
        decoding = PromptCache(model).start(ids[:5])
        parts = (ids[5:12], ids[12:13], ids[13:])
        found.append(torch.cat([decoding._read(decoding.embed(part)) for part in parts], dim=1))
        handle.remove()
        assert len(called) == (1 if own else 4)  # prompts are long: transformers reads them
    torch.testing.assert_close(*found, atol=1e-5, rtol=0)


def test_other_decoders_are_left_to_transformers(plain_llama):
    _, llama4 = build(encoder_config=STREAMING, decoder_config=LLAMA4)
    halved = copy.deepcopy(plain_llama[1].decoder.model).to(torch.bfloat16)
    assert not llama_steps.fits(decoder_body(llama4.decoder)) and not llama_steps.fits(halved)
