import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from wearllama.modeling.factory import PACKAGED_TOKENIZER
from wearllama.modeling.tokenizer import add_project_tokens, token_ids, train_tokenizer

PACKAGED = AutoTokenizer.from_pretrained(PACKAGED_TOKENIZER)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=100, deadline=None)
def test_any_text_survives(text):
    ids = PACKAGED.encode(text, add_special_tokens=False)
    assert PACKAGED.decode(ids, clean_up_tokenization_spaces=False) == text


def test_actions_are_single_tokens_that_decoding_keeps():
    text = '<|TOOL|>[{"name": "weather", "parameters": {}}]</|TOOL|>[Mute]'
    ids = PACKAGED.encode(text, add_special_tokens=False)
    assert PACKAGED.decode([*ids, PACKAGED.eos_token_id], skip_special_tokens=True) == text
    assert len(PACKAGED.encode("[Mute]", add_special_tokens=False)) == 1
    assert len(PACKAGED.encode(" media_control", add_special_tokens=False)) == 1
    assert len(PACKAGED) == 1024


def test_training_is_deterministic_and_checks_its_size():
    texts = ["turn the music up", "[Mute]", "what is the weather"] * 3
    first, second = (train_tokenizer(texts, 280) for _ in range(2))
    assert first.get_vocab() == second.get_vocab()
    assert token_ids(first).pad != token_ids(first).eos
    with pytest.raises(ValueError, match="wanted at least 267"):
        train_tokenizer(texts, 200)


def test_pretrained_tokenizers_get_the_project_tokens():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel()
    backend.add_special_tokens(["<|im_end|>"])
    foreign = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|im_end|>")
    with pytest.raises(ValueError, match="as single tokens"):
        token_ids(foreign)
    assert add_project_tokens(foreign) == 7  # three of audio, three of actions, and a pad that is not the eos
    ids = token_ids(foreign)
    assert ids.pad != ids.eos
    assert add_project_tokens(foreign) == 0
