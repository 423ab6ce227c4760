"""Start a projector's word path: the encoder's CTC head, and the decoder's own embeddings of its word pieces."""

import torch

from wearllama.data.ctc_text import WordPieces
from wearllama.modeling.encoder_io import find_encoder, stored_head
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor


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
    weight_VD, bias_V = stored_head(weights)
    projector.pieces.weight.copy_(weight_VD)
    projector.pieces.bias.copy_(bias_V)
    projector.words.weight.zero_()
    for number, text in enumerate(pieces.texts()):
        ids = processor.tokenizer.encode(text, add_special_tokens=False)
        if ids:
            projector.words.weight[:, number] = model.embed_tokens(torch.tensor(ids)).mean(0)
