"""Registers WearLlama with the Auto classes of transformers; imported by ``import wearllama``."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoProcessor

from wearllama.modeling.configuration import WearLlamaConfig
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor

AutoConfig.register(WearLlamaConfig.model_type, WearLlamaConfig, exist_ok=True)
AutoModel.register(WearLlamaConfig, WearLlamaForConditionalGeneration, exist_ok=True)
AutoModelForCausalLM.register(WearLlamaConfig, WearLlamaForConditionalGeneration, exist_ok=True)
AutoProcessor.register(WearLlamaConfig, WearLlamaProcessor, exist_ok=True)
