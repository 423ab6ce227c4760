"""Put the page on a local address until Ctrl-C."""

import os

import gradio as gr
from playground.page import CSS, Page

FONTS = ("system-ui", "sans-serif")


def serve(page: Page, host: str, port: int) -> None:
    """Serve until interrupted; the address is printed."""
    url = start(page, host, port)
    print(f"play: {url} (Ctrl-C ends)", flush=True)
    try:
        page.blocks.block_thread()
    finally:
        page.close()


def start(page: Page, host: str, port: int) -> str:
    """Start serving beside the caller; returns the address."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    theme = gr.themes.Default(primary_hue="blue", font=list(FONTS), font_mono=["ui-monospace", "monospace"])
    page.blocks.queue(default_concurrency_limit=1)
    _, url, _ = page.blocks.launch(
        server_name=host, server_port=port or None, share=False, quiet=True, prevent_thread_lock=True, theme=theme,
        css=CSS, footer_links=[],
    )  # fmt: skip
    return str(url)
