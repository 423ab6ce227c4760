import numpy as np
import pytest
import torch
from tiny_wearllama import HEARD, READ, clip, tiny_config
from transformers import AutoProcessor

from wearllama.modeling.factory import build_processor
from wearllama.modeling.processing import WearLlamaProcessor


@pytest.fixture(scope="module")
def processor():
    return build_processor(tiny_config())


def test_labels_cover_exactly_target_and_eos(processor):
    batch = processor([HEARD, READ], [clip(0.5), None], targets=["[Mute]", "A longer answer."])
    for row, target in enumerate(("[Mute]", "A longer answer.")):
        supervised = batch["labels"][row][batch["labels"][row] != -100]
        assert supervised.tolist() == processor.encode_target(target)
        assert int(supervised[-1]) == processor.ids.eos
        assert processor.batch_decode([supervised]) == [target]
        kept = batch["input_ids"][row][batch["attention_mask"][row].bool()]
        assert kept[-len(supervised) :].tolist() == supervised.tolist()
    assert processor.ids.pad != processor.ids.eos


def test_training_prompt_is_the_inference_prompt(processor):
    training = processor([HEARD], [clip(0.5)], targets=["yes"])
    inference = processor([HEARD], [clip(0.5)])
    size = inference["input_ids"].shape[1]
    assert training["input_ids"][0, :size].tolist() == inference["input_ids"][0].tolist()
    assert "labels" not in inference


def test_the_three_forms_of_a_clip_agree(processor):
    five = clip(0.5)
    c0, cx = processor.select(five)
    assert torch.equal(c0, torch.from_numpy(five[0]))
    assert torch.equal(processor.features([five])[0], processor.features([(c0, cx)])[0])


def test_bad_clips_raise(processor):
    with pytest.raises(ValueError, match=r"30.01 s is longer than the model's limit of 30 s"):
        processor([HEARD], [np.zeros((5, 480_160), dtype=np.float32)])
    for wrong in (4, 6):
        with pytest.raises(ValueError, match=f"found {wrong} channels, wanted 5"):
            processor([HEARD], [clip(0.2, channels=wrong)])
    with pytest.raises(ValueError, match="needs c_0 and c_x, found one waveform"):
        processor([HEARD], [clip(0.2)[0]])
    with pytest.raises(ValueError, match=r"must be .N,. alike"):
        processor([HEARD], [(clip(0.2)[0], clip(0.3)[0])])
    with pytest.raises(ValueError, match="no samples"):
        processor([HEARD], [np.zeros((5, 0), dtype=np.float32)])
    with pytest.raises(ValueError, match="int16"):
        processor([HEARD], [np.zeros((5, 800), dtype=np.int16)])


def test_bad_messages_raise(processor):
    with pytest.raises(ValueError, match="1 audio parts, but 0 clips"):
        processor([HEARD], None)
    with pytest.raises(ValueError, match="0 audio parts, but 1 clips"):
        processor([READ], [clip(0.2)])
    with pytest.raises(ValueError, match="holds an audio token"):
        processor([[{"role": "user", "content": "say <|audio|>"}]], None)
    with pytest.raises(ValueError, match="2 conversations came with 1 rows of targets"):
        processor([READ, READ], None, targets=["a"])
    with pytest.raises(ValueError, match="decoder's limit is 2048"):
        processor([[{"role": "user", "content": "word " * 3000}]], None)


def test_single_channel_processors_choose_theirs():
    five = clip(0.3)
    mc = build_processor(tiny_config()).select(five)
    for channels, row in (("sc_c0", 0), ("sc_beam", 1)):
        single = build_processor(tiny_config(channels=channels))
        assert torch.equal(single.select(five), mc[row : row + 1])
        assert torch.equal(single.select(mc[row]), mc[row : row + 1])


def test_save_and_load_give_the_same_batch(processor, tmp_path):
    processor.save_pretrained(tmp_path)
    again = AutoProcessor.from_pretrained(tmp_path)
    assert isinstance(again, WearLlamaProcessor)
    before, after = (p([HEARD, READ], [clip(0.5), None], targets=["[Mute]", "no"]) for p in (processor, again))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert again.array == processor.array
