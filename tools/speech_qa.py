"""Questions and remarks in speech with the decoder's own reply to their words as the target (AudioChatLlama's way).

The decoder reads the transcript under exactly the prompt that training will use, where the sound will stand; what it
says becomes the row's target. Replies are kept in replies.jsonl, so that a killed run asks nothing twice; what is
empty, too long, cut off, an echo or a loop, or talks about text or about not hearing is left out. A share of rows asks
for the transcript itself: a model that learns its own replies alone forgets how to write down what is said.

Run as: python tools/speech_qa.py speech=data/speech/en out=data/qa.jsonl chat.model=smollm2
        python tools/speech_qa.py speech=... out=... chat.model=openai:NAME chat.endpoint.base_url=http://localhost:8000/v1
"""

import hashlib
import json
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from wearllama.data.faults import Faults
from wearllama.data.manifest import Example, write_manifest
from wearllama.data.prompts import PromptStyle, build_messages, load_prompts
from wearllama.data.speech_rows import MANIFEST, SpeechManifest, read_rows
from wearllama.data.spoken_examples import SceneDefaults, Turn, spoken_example
from wearllama.data.text_checks import repeats_itself, word_normaliser
from wearllama.data.tools import WEARVOX_TOOLS
from wearllama.data.transcription_rows import clip_row
from wearllama.evaluation.chat import ChatConfig, ChatModel, open_chat
from wearllama_launch import launch

GIVEAWAYS = re.compile(
    r"\b(text|transcript|transcription|typed?|written|message you|sentence|can ?not hear|can't hear|unable to hear|"
    r"audio|listen|as an ai|language model|chatbot|your response)\b",
    re.IGNORECASE,
)
"""Words of a reply that speak of reading, or of not hearing: sound will stand where it read."""
WORDS = word_normaliser("any")


@dataclass(kw_only=True)
class SpeechQa:
    speech: str
    """Folder of a speech manifest (tools/import_speech.py, tools/pseudo_label.py, tools/synthesize.py)."""
    out: str
    """Manifest of examples; replies.jsonl is kept beside it."""
    root: str | None = None
    """Folder that paths are relative to (``data.root`` of training); the folder of ``out`` if not given."""
    chat: ChatConfig = field(default_factory=ChatConfig)
    style: PromptStyle = "full"
    """Prompts, as in training: ``full`` or ``compact``."""
    scenes: SceneDefaults = field(default_factory=SceneDefaults)
    asr_share: float = 0.3
    """Rows more, as a share of the questions, that ask for the words."""
    min_words: int = 3
    max_reply_words: int = 60
    limit: int | None = None
    tolerance: float = 0.05
    """Share of the requests that may fail for good."""
    batch: int = 8
    """Requests between two writes."""


@launch("speech_qa", SpeechQa)
def main(config: SpeechQa) -> None:
    speech, out = Path(config.speech), Path(config.out)
    faults = Faults(out.with_suffix(".faults.jsonl"), config.tolerance)
    model = open_chat(config.chat)
    system = load_prompts(style=config.style).system("wearvox", WEARVOX_TOOLS)
    rows = [row for row in read_rows(speech / MANIFEST) if len(str(row.get("text") or "").split()) >= config.min_words]
    rows = rows[: config.limit]
    replies = ask(rows, system, model, SpeechManifest(out.with_suffix(".replies.jsonl")), faults, config.batch)
    faults.finish()

    dropped: Counter[str] = Counter()
    examples = []
    for row in rows:
        text = replies.get(row["id"])
        if text is None:
            continue
        if reason := why_not(text, str(row["text"]), config.max_reply_words):
            dropped[reason] += 1
            continue
        examples.append(example(row, "speech_qa", build_messages(system=system), text, config))
    examples += asr_examples(rows, round(config.asr_share * len(examples)), config)
    count = write_manifest(out, examples)
    print(f"{out}: {count} rows of {len(rows)} clips; replies left out: {dict(dropped)}")


def ask(
    rows: list[dict[str, Any]], system: str, model: ChatModel, known: SpeechManifest, faults: Faults, batch: int
) -> dict[str, str]:
    """The model's reply to every row's words, by id; what is known already is not asked again."""
    made_by = hashlib.sha256(
        json.dumps([system, model.identity, model.generation], sort_keys=True).encode()
    ).hexdigest()[:12]
    keys = {row["id"]: f"{row['id']}/{made_by}/{hashlib.sha256(row['text'].encode()).hexdigest()[:8]}" for row in rows}
    todo = [row for row in rows if keys[row["id"]] not in known]
    faults.good(len(rows) - len(todo))
    with tqdm(total=len(rows), initial=len(rows) - len(todo), desc="replies", unit="reply") as bar:
        for start in range(0, len(todo), batch):
            part = todo[start : start + batch]
            chats = [build_messages(system=system, user=row["text"]) for row in part]
            for row, reply in zip(part, model.complete(chats), strict=True):
                if reply.error:
                    faults.add("request failed", row["id"], reply.error)
                    continue
                known.append({"id": keys[row["id"]], "row": row["id"], "text": reply.text, "model": model.identity})
                faults.good()
            bar.update(len(part))
    wanted = set(keys.values())
    return {line["row"]: line["text"] for line in read_rows(known.path) if line["id"] in wanted}


def why_not(reply: str, question: str, max_words: int) -> str | None:
    """Why a reply is no target; None where it is one. Small models ramble into their limit, loop and parrot."""
    words = len(reply.split())
    if not words:
        return "empty"
    if words > max_words:
        return "too long"
    if GIVEAWAYS.search(reply):
        return "speaks of text"
    if "<|" in reply or reply.lstrip().startswith(("[", "{")):
        return "no plain answer"
    if reply.rstrip("\"'”\u2019)* ")[-1:] not in tuple(".!?…。"):
        return "cut off"
    if repeats_itself(reply):
        return "repeats itself"
    if f" {WORDS(reply)} " in f" {WORDS(question)} ":
        return "echo"
    return None


def asr_examples(rows: list[dict[str, Any]], count: int, config: SpeechQa) -> list[Example]:
    """Some of the rows again, with their words as the target."""
    chosen = random.Random(0).sample(rows, min(count, len(rows)))
    root = Path(config.root) if config.root else Path(config.out).parent
    return [
        clip_row(row, style=config.style, speech=Path(config.speech), root=root, scenes=config.scenes)
        for row in sorted(chosen, key=lambda row: row["id"])
    ]


def example(row: dict[str, Any], task: str, messages: Any, target: str, config: SpeechQa) -> Example:
    out = Path(config.out)
    root = Path(config.root) if config.root else out.parent
    return spoken_example(
        f"{task}-{row['id']}", task, [Turn(row)], messages=messages, target=target, speech_root=Path(config.speech),
        audio_root=root, defaults=config.scenes, source=str(row.get("source", Path(config.speech).name)),
    )  # fmt: skip


if __name__ == "__main__":
    main()
