"""The word path of the projector starts as the encoder's pieces in the decoder's own embeddings."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import set_seed

from wearllama.data.ctc_text import WordPieces
from wearllama.modeling.encoder_io import PACKAGED
from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.training.align import align_projector

DEMO = ModelConfig(
    encoder="packaged",
    decoder_config={
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    projector={"pieces": 1000},
)


def built(config: ModelConfig) -> tuple[Any, Any]:
    set_seed(3)
    processor = build_processor(config)
    return build_model(config, processor), processor


def test_a_sure_piece_enters_as_its_word_does_in_text() -> None:
    model, processor = built(DEMO)
    align_projector(model, processor, "packaged")
    pieces = WordPieces.load(PACKAGED / "pieces.json")
    number = pieces.texts().index(" alarm")
    ids = processor.tokenizer.encode(" alarm", add_special_tokens=False)
    wanted_E = model.embed_tokens(torch.tensor(ids)).mean(0)
    model.projector.pieces.bias.data[number] = 1e4  # the head is sure
    frame_BCLD = torch.randn(1, 2, 1, model.encoder.config.width)
    with_path = model.projector(frame_BCLD, torch.ones(1, 1, dtype=torch.bool))
    model.projector.words.weight.data.zero_()
    without = model.projector(frame_BCLD, torch.ones(1, 1, dtype=torch.bool))
    torch.testing.assert_close((with_path - without)[0, 0, 0], wanted_E, atol=1e-4, rtol=1e-3)


def test_blank_enters_as_nothing() -> None:
    model, processor = built(DEMO)
    align_projector(model, processor, "packaged")
    assert not model.projector.words.weight[:, 0].any() and model.projector.words.weight[:, 1:].any(0).all()


def test_texts_of_pieces_say_where_words_begin() -> None:
    pieces = WordPieces.train(["set an alarm", "set the alarm again"], 40)
    texts = pieces.texts()
    assert len(texts) == pieces.size and texts[0] == ""
    ids = pieces.encode("set an alarm")
    assert "".join(texts[i] for i in ids) == " set an alarm"


def test_what_does_not_fit_is_an_error() -> None:
    model, processor = built(replace(DEMO, projector={}))
    with pytest.raises(ValueError, match=r"model\.projector\.pieces"):
        align_projector(model, processor, "packaged")
    model, processor = built(replace(DEMO, projector={"pieces": 7}))
    with pytest.raises(ValueError, match=r"is 7, but .* has 1000 pieces"):
        align_projector(model, processor, "packaged")


def test_scratch_has_nothing_to_align(recipe: Any) -> None:
    from wearllama_launch import compose_config

    config, _ = compose_config("sft", recipe.SftCommand, ["experiment=demo", "encoder=scratch"])
    assert not config.align
