"""`generate` with batches, beams and several sequences a prompt: the same as clip by clip, each with its own audio."""

import pytest
import torch
from tiny_wearllama import HEARD, READ, build, clip

NEW = {"max_new_tokens": 10, "do_sample": False}
TWO = [*HEARD, {"role": "assistant", "content": "[Mute]"}, HEARD[1]]
ROWS = [(HEARD, clip(0.4, 1)), (READ, None), (TWO, [clip(0.3, 2), clip(0.7, 3)]), (HEARD, clip(1.6, 4))]
"""One clip, none, two, and a longer one: whoever miscounts clips gives a row the audio of another."""


def replies(processor, model, rows, **settings):
    """Ids of the replies, a list for each returned row, cut at the end token."""
    batch = processor([messages for messages, _ in rows], [audio for _, audio in rows])
    with torch.no_grad():
        out_BS = model.generate(**batch, **(NEW | settings))[:, batch["input_ids"].shape[1] :]
    return [cut(row.tolist(), processor.ids.eos) for row in out_BS]


def cut(ids, eos):
    return ids[: ids.index(eos)] if eos in ids else ids


def test_any_batch_size_gives_the_same_text(tiny):
    processor, model = tiny
    seconds = [0.1 + 0.37 * (number % 11) ** 1.3 / 5 for number in range(32)]
    rows = [(HEARD, clip(length, number)) if number % 7 else (READ, None) for number, length in enumerate(seconds)]
    found = {
        size: [
            ids for start in range(0, len(rows), size) for ids in replies(processor, model, rows[start : start + size])
        ]
        for size in (1, 4, 16)
    }
    assert found[1] == found[4] == found[16]
    assert len({tuple(ids) for ids in found[1]}) > 20  # the texts do depend on the clip


@pytest.mark.parametrize("beams", [2, 4])
def test_beams_in_a_batch_equal_beams_alone(tiny, beams):
    processor, model = tiny
    together = replies(processor, model, ROWS, num_beams=beams)
    alone = [replies(processor, model, [row], num_beams=beams)[0] for row in ROWS]
    assert together == alone
    assert len({tuple(ids) for ids in alone}) == len(ROWS)


def test_beams_are_scored_with_their_own_audio(tiny):
    """What beam search says of its sequences is what one pass over prompt, audio and sequence says."""
    processor, model = tiny
    batch = processor([messages for messages, _ in ROWS], [audio for _, audio in ROWS])
    settings = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "num_beams": 3, "num_return_sequences": 2}
    start = batch["input_ids"].shape[1]
    with torch.no_grad():
        out = model.generate(**batch, **settings, length_penalty=0.0, output_scores=True, return_dict_in_generate=True)
    for number, sequence in enumerate(out.sequences):
        messages, audio = ROWS[number // 2]
        prompt = processor([messages], [audio])
        ids = torch.cat([prompt["input_ids"], sequence[None, start:]], dim=1)
        with torch.no_grad():
            scores = model(
                input_ids=ids, **{k: prompt[k] for k in ("input_features", "feature_lengths") if k in prompt}
            )
        size = prompt["input_ids"].shape[1]
        logp_NV = scores.logits[0, size - 1 : -1].log_softmax(-1)
        total = logp_NV[torch.arange(5), sequence[start:]].sum()
        torch.testing.assert_close(out.sequences_scores[number], total, atol=2e-4, rtol=1e-4)


def test_sequences_of_a_prompt_stand_together_and_hear_its_clips(tiny):
    """With one candidate a step, drawing is greedy: row 3 n + i must say what clip n says alone."""
    processor, model = tiny
    drawn = replies(processor, model, ROWS, do_sample=True, top_k=1, num_return_sequences=3)
    alone = [replies(processor, model, [row])[0] for row in ROWS]
    assert len({tuple(ids) for ids in alone}) == len(ROWS)
    assert drawn == [ids for ids in alone for _ in range(3)]


def test_sequences_of_beams_equal_those_of_single_clips(tiny):
    processor, model = tiny
    settings = {"num_beams": 4, "num_return_sequences": 4}
    together = replies(processor, model, ROWS, **settings)
    assert together == [ids for row in ROWS for ids in replies(processor, model, [row], **settings)]
    assert len({tuple(ids) for ids in together[:4]}) == 4


def test_audio_of_other_rows_would_be_noticed(tiny, monkeypatch):
    """The tests above fail where clips are repeated one after another instead of with their row."""
    processor, model = tiny
    rows = [(HEARD, clip(0.4, 1)), (HEARD, clip(0.4, 2))]
    expand = type(model)._expand_inputs_for_generation

    def misassign(self, expand_size=1, **kwargs):
        ids, kwargs = expand(self, expand_size=expand_size, **kwargs)
        order = torch.arange(len(ids)).view(-1, expand_size).T.flatten()
        return ids, {**kwargs, "input_features": kwargs["input_features"][order]}

    right = replies(processor, model, rows, do_sample=True, top_k=1, num_return_sequences=2)
    monkeypatch.setattr(type(model), "_expand_inputs_for_generation", misassign)
    assert replies(processor, model, rows, do_sample=True, top_k=1, num_return_sequences=2) != right


def test_generation_from_embeddings(tiny):
    processor, model = tiny
    batch = processor([HEARD], [clip(0.6)])
    with torch.no_grad():
        embeds_BSE = model.embed_inputs(batch["input_ids"], batch["input_features"], batch["feature_lengths"])
        ids = model.generate(inputs_embeds=embeds_BSE, attention_mask=batch["attention_mask"], **NEW)
    assert cut(ids[0].tolist(), processor.ids.eos) == replies(processor, model, [(HEARD, clip(0.6))])[0]


def test_half_precision_batches_answer(tiny):
    processor, model = tiny
    _, half = build(dtype="bfloat16")
    half.load_state_dict(model.state_dict())
    assert len(replies(processor, half, ROWS, num_beams=2, num_return_sequences=2)) == 2 * len(ROWS)
