import pytest

from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.invariance import differences, texts_by_batch_size
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox


@pytest.fixture(scope="module")
def examples(wearvox_data):
    return load_wearvox(wearvox_data, WearVoxConfig(), progress=False)


def test_batches_of_every_size_say_the_same(ckpt, wearvox_data, examples):
    model = CheckpointAdapter(ckpt, max_new_tokens=6)
    texts = texts_by_batch_size(model, examples, wearvox_data, (1, 3, 8))
    assert all(set(found) == {example.id for example in examples} for found in texts.values())
    assert differences(texts) == []


def test_a_model_that_looks_at_its_neighbours_is_found(ckpt, wearvox_data, examples):
    class Neighbourly(CheckpointAdapter):
        def generate(self, examples, clips):
            return [f"{len(examples)} here"] * len(examples)

    texts = texts_by_batch_size(Neighbourly(ckpt), examples, wearvox_data, (1, 2))
    found = differences(texts)
    assert len(found) == len(examples) - len(examples) % 2
    assert found[0].batch_size == 2 and found[0].wanted == "1 here" and found[0].found == "2 here"
