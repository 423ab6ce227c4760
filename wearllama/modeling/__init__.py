"""Encoder, projector, interleaving, and WearLlama as a transformers model with its config and processor.

``import wearllama.modeling.auto`` (``factory`` does it) registers WearLlama with the Auto classes of transformers; the
encoder alone needs torch only, so nothing is imported here.
"""
