"""The evaluation's pages in a real browser: filters filter, players play, and what a model says stays text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from wearllama.audio.io import write_audio
from wearllama.evaluation.items import render_items
from wearllama.evaluation.report import Section, render_html
from wearllama.evaluation.table import Table

HOSTILE = "</script><script>window.hacked = true</script><img src=x onerror='window.hacked = true'>"
OpenPage = Callable[..., Any]
TASKS = ("tool_call", "closed_book")


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "system": "model", "id": f"item-{number:03d}", "task": TASKS[number % 2], "kind": "answer",
        "correct": int(number % 3 == 0), "session": None, "unscored": "", "error": "", "truncated_from_s": None,
        "seconds": 1.0, "environment": "indoor", "noise_type": "Music", "location": "office", "partner_distance": None,
        "words": f"words {number}", "wanted": "yes", "said": f"reply {number}", "note": "", "audio": None,
    } | changes  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A run's folder with its items page, and the recordings beside it under a name that URLs must escape."""
    tone_1N = 0.2 * torch.sin(torch.arange(8000) * 0.1)[None]
    (tmp_path / "data").mkdir()
    write_audio(tmp_path / "data" / "a #1 100%.wav", tone_1N)
    rows = [row(number) for number in range(60)]
    rows[0] |= {"audio": "a #1 100%.wav"}
    rows[1] |= {"said": HOSTILE, "words": HOSTILE, "note": HOSTILE, "task": HOSTILE}
    rows[2] |= {"audio": "missing.wav"}
    (tmp_path / "run").mkdir()
    page = tmp_path / "run" / "items.html"
    page.write_text(render_items("Items & more", rows, "../data"), encoding="utf-8")
    return page


def shown(page: Any) -> list[str]:
    return page.locator("#items .item b").all_inner_texts()


def test_filters_pages_and_search(site: Path, open_page: OpenPage) -> None:
    with open_page() as page:
        page.goto(site.as_uri())
        assert page.locator("#count").inner_text() == "60 of 60 items, from 1"
        assert len(shown(page)) == 50
        page.click("#next")
        assert shown(page) == [f"item-{n:03d}" for n in range(50, 60)]
        page.select_option("select[name=task]", "tool_call")
        assert page.locator("#count").inner_text() == "30 of 60 items, from 1"
        page.select_option("select[name=verdict]", "right")
        assert shown(page) == [f"item-{n:03d}" for n in range(0, 60, 6)]
        page.fill("input[name=search]", "REPLY 12")
        assert shown(page) == ["item-012"]
        page.fill("input[name=search]", "nothing has this")
        assert page.locator("#count").inner_text() == "0 of 60 items, from 0" and shown(page) == []


def test_what_a_model_says_stays_text(site: Path, open_page: OpenPage) -> None:
    with open_page() as page:
        page.goto(site.as_uri())
        item = page.locator("#items .item").nth(1)
        assert item.locator("code").all_inner_texts()[2] == HOSTILE
        assert item.locator("img, script").count() == 0
        assert page.locator("select[name=task] option").all_inner_texts()[1] == HOSTILE
        page.wait_for_timeout(300)
        assert page.evaluate("window.hacked") is None
        assert page.locator("body > script").count() == 2


def test_players_load_what_lies_beside_the_page(site: Path, open_page: OpenPage) -> None:
    with open_page() as page:
        page.goto(site.as_uri())
        players = page.locator("#items audio")
        assert players.count() == 2
        seconds = players.nth(0).evaluate(LOAD)
        assert seconds == pytest.approx(0.5, abs=0.05)
        assert players.nth(1).evaluate(LOAD) == "error"


def test_the_reports_own_players_and_words(tmp_path: Path, open_page: OpenPage) -> None:
    from wearllama.evaluation.clips import _data_uri

    sound = _data_uri(0.2 * torch.sin(torch.arange(8000) * 0.1))
    clip = {"id": HOSTILE, "task": "tool_call", "seconds": 0.5, "correct": True, "note": HOSTILE, "words": HOSTILE,
            "wanted": "[Mute]", "said": HOSTILE, "c0": sound, "cx": sound}  # fmt: skip
    table = Table("Scores", ("system", "x"), [(HOSTILE, "1")], HOSTILE)
    path = tmp_path / "report.html"
    path.write_text(render_html("A report", [Section("WearVox", HOSTILE, [table], [], [clip])]), encoding="utf-8")
    with open_page() as page:
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        assert page.locator(".clip code").all_inner_texts() == ["[Mute]", HOSTILE]
        assert page.locator("script, img").count() == 0
        for number in range(2):
            assert page.locator("audio").nth(number).evaluate(LOAD) == pytest.approx(0.5, abs=0.05)
        assert page.evaluate("window.hacked") is None
        assert all(address.startswith(("file:", "data:")) for address in requests)


LOAD = """player => new Promise(done => { player.onloadedmetadata = () => done(player.duration);
 player.onerror = () => done("error"); player.load(); player.play().catch(() => 0); })"""
