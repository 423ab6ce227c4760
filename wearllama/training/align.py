"""Start a projector's word path: the encoder's CTC head, and the decoder's own embeddings of its word pieces."""

import torch
from safetensors import safe_open

from wearllama.data.ctc_text import WordPieces
from wearllama.modeling.encoder_io import find_encoder
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor

HEAD = "piece_head"
"""Name of the CTC head over word pieces in what recipes/pretrain_encoder.py exports."""


@torch.no_grad()
def align_projector(model: WearLlamaForConditionalGeneration, processor: WearLlamaProcessor, encoder: str) -> None:
    """Copy the head of the stored ``encoder`` and average the decoder's token embeddings of each piece, in place.

    A frame that is surely "alarm" then enters the decoder as the word does in text; blank enters as nothing.

    Raises:
        ValueError: the projector has no word path, or the stored encoder no head of its size.
    """
    projector = model.projector
    if projector.pieces is None or projector.words is None:
        raise ValueError("align=true needs the projector's word path: set model.projector.pieces to the head's size")
    weights = find_encoder(encoder)
    pieces = WordPieces.load(weights.with_name("pieces.json"))
    if pieces.size != projector.pieces.out_features:
        raise ValueError(
            f"model.projector.pieces is {projector.pieces.out_features}, but {weights.parent} has {pieces.size} pieces"
        )
    with safe_open(weights, "pt") as stored:
        if f"{HEAD}.weight" not in stored.keys():  # noqa: SIM118  (safe_open is no mapping)
            raise ValueError(f"{weights} has no {HEAD}.weight: align=true wants an encoder exported with its heads")
        projector.pieces.weight.copy_(stored.get_tensor(f"{HEAD}.weight"))
        projector.pieces.bias.copy_(stored.get_tensor(f"{HEAD}.bias"))
    projector.words.weight.zero_()
    for number, text in enumerate(pieces.texts()):
        ids = processor.tokenizer.encode(text, add_special_tokens=False)
        if ids:
            projector.words.weight[:, number] = model.embed_tokens(torch.tensor(ids)).mean(0)
