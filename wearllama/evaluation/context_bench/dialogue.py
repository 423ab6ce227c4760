"""What the candidate is sent, turn by turn, and what the judge is sent about its answer."""

from collections.abc import Sequence

from wearllama.data.manifest import Example
from wearllama.data.prompts import Message
from wearllama.evaluation.context_bench.tasks import LABELS, PromptCondition, Task

TURN_1, TURN_2 = "context_bench/turn_1", "context_bench/turn_2"

JUDGE_PROMPT = (
    "You classify one reply of a voice assistant that runs on a wearable device. Between the user's first and second "
    "turn what the camera sees changed. Say which scene the reply to the second turn speaks about:\n"
    "- current: it answers about what the camera shows in the second turn;\n"
    "- prior: it answers about what was seen earlier;\n"
    "- clarify: it asks the user which thing is meant;\n"
    "- abstain: it says that it cannot tell from what it has, or declines.\n"
    "Four lists show words that replies of each kind tend to hold. They are hints only: a reply may hold words of one "
    "list and still be of another kind.\n"
    "Think in a few sentences. Then write as the last line one JSON object and nothing after it: "
    '{"selected_label": "current" or "prior" or "clarify" or "abstain", "rationale": "one sentence"}'
)
"""Ours, for clones without their judge's code; its hash is in every result, ``judge_prompt=FILE`` replaces it."""


def first_turn(task: Task, condition: PromptCondition, *, camera: bool = True) -> list[Message]:
    """System prompt, the scene before the conversation (a turn of its own, where there is one), and turn 1."""
    messages: list[Message] = [{"role": "system", "content": condition.system_prompt}]
    if camera and task.pre_scene:
        messages.append({"role": "user", "content": f"[Camera: {task.pre_scene}]"})
    return [*messages, user_turn(task.scene_1, task.turn_1_user, camera=camera)]


def second_turn(task: Task, condition: PromptCondition, answer: str, *, camera: bool = True) -> list[Message]:
    """The first turn, the model's own answer to it, and turn 2."""
    own = {"role": "assistant", "content": answer}
    return [*first_turn(task, condition, camera=camera), own, user_turn(task.scene_2, task.turn_2_user, camera=camera)]


def user_turn(scene: str, words: str, *, camera: bool = True) -> Message:
    """A user's turn: the scene as a block of its own line where the camera is on and saw something, and the words."""
    return {"role": "user", "content": f"[Camera: {scene}]\n{words}" if camera and scene else words}


def judge_item(task: Task, answer: str) -> str:
    """What the judge is shown: scenes, words, reply and anchors; never the gold label, the shift type or notes."""
    scenes = [("before the conversation", task.pre_scene), ("turn 1", task.scene_1), ("turn 2", task.scene_2)]
    parts = [f"Camera, {name}: {scene}" for name, scene in scenes if scene]
    parts += [f"User, turn 1: {task.turn_1_user}", f"User, turn 2: {task.turn_2_user}"]
    parts.append(f"REPLY TO CLASSIFY (to turn 2):\n{answer}")
    for label in LABELS:
        listed = "\n".join(f"- {item}" for item in task.anchors[label]) or "- (none)"
        parts.append(f"{label.upper()} anchors:\n{listed}")
    return "\n\n".join(parts)


def text_example(task: Task, condition: PromptCondition, kind: str, messages: Sequence[Message]) -> Example:
    """A row for the harness; the target is the gold label, which no model sees."""
    return Example(
        id=f"{task.id}/{condition.name}/{kind.rpartition('/')[2]}", task=kind, split="test", messages=list(messages),
        target=task.gold, metadata={"task": task.id, "condition": condition.name},
    )  # fmt: skip
