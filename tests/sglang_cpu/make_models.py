"""Tiny random models for the real SGLang on a CPU: make_models.py DIRECTORY.

A Llama target and drafts for each speculative algorithm, with tokenizer and safetensors, about 2 MB together. Nothing is
downloaded. The target is a next-token table (lm_head of the embedding) plus a little random attention and MLP: close
to a bigram model, so a draft that knows the table has a real, partial acceptance.

- tiny-llama: the target
- tiny-eagle3-draft: EAGLE-3 head with a reduced draft vocabulary, accepts about 2 to 3 tokens a step
- tiny-eagle3-draft-random: the same shape with random weights, accepts almost nothing
- tiny-eagle-draft, tiny-standalone-draft: for EAGLE and STANDALONE
"""

import glob
import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY, HIDDEN, HEADS, KV_HEADS, MLP = 1024, 64, 4, 2, 128
HEAD_DIM = HIDDEN // HEADS
DRAFT_VOCABULARY = 768
TARGET_LAYERS = 8
DAMPING = 0.2  # share of the layers in the target's output: 1.0 is unpredictable for a draft, 0.0 is the table alone
SPECIAL_TOKENS = ["<|pad|>", "<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BF16 = torch.bfloat16

Weights = dict[str, torch.Tensor]


def train_tokenizer() -> Tokenizer:
    """A byte-level BPE trained on the standard library's own sources."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL_TOKENS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train(sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))[:60], trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise SystemExit(f"tokenizer has {tokenizer.get_vocab_size()} tokens, wanted {VOCABULARY}")
    return tokenizer


def config(**changes: object) -> dict[str, object]:
    values: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "attention_bias": False,
        "mlp_bias": False,
    }
    return values | changes


def rand(*shape: int, scale: float = 0.08) -> torch.Tensor:
    return (torch.randn(*shape) * scale).to(BF16)


def eye(n: int) -> torch.Tensor:
    return torch.eye(n, dtype=BF16)


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=BF16)


def ones(n: int) -> torch.Tensor:
    return torch.ones(n, dtype=BF16)


def layer(prefix: str, attention_input: int = HIDDEN) -> Weights:
    return {
        f"{prefix}.self_attn.q_proj.weight": rand(HEADS * HEAD_DIM, attention_input),
        f"{prefix}.self_attn.k_proj.weight": rand(KV_HEADS * HEAD_DIM, attention_input),
        f"{prefix}.self_attn.v_proj.weight": rand(KV_HEADS * HEAD_DIM, attention_input),
        f"{prefix}.self_attn.o_proj.weight": rand(HIDDEN, HEADS * HEAD_DIM),
        f"{prefix}.mlp.gate_proj.weight": rand(MLP, HIDDEN),
        f"{prefix}.mlp.up_proj.weight": rand(MLP, HIDDEN),
        f"{prefix}.mlp.down_proj.weight": rand(HIDDEN, MLP),
        f"{prefix}.input_layernorm.weight": ones(HIDDEN),
        f"{prefix}.post_attention_layernorm.weight": ones(HIDDEN),
    }


def target_weights() -> Weights:
    weights = {
        "model.embed_tokens.weight": rand(VOCABULARY, HIDDEN, scale=1.0),
        "lm_head.weight": rand(VOCABULARY, HIDDEN, scale=0.3),
        "model.norm.weight": ones(HIDDEN),
    }
    for index in range(TARGET_LAYERS):
        for name, value in layer(f"model.layers.{index}").items():
            damped = name.endswith(("o_proj.weight", "down_proj.weight"))
            weights[name] = (value.float() * DAMPING).to(BF16) if damped else value
    return weights


def standalone_weights(target: Weights) -> Weights:
    """The target's table and its first layer only."""
    return {k: v for k, v in target.items() if not k.startswith("model.layers.") or k.startswith("model.layers.0.")}


def eagle_weights(target: Weights) -> Weights:
    """One layer that does nothing; fc passes the embedding on; lm_head comes from the target."""
    weights = layer("layers.0")
    weights["layers.0.self_attn.o_proj.weight"] = zeros(HIDDEN, HEADS * HEAD_DIM)
    weights["layers.0.mlp.down_proj.weight"] = zeros(HIDDEN, MLP)
    del weights["layers.0.input_layernorm.weight"]
    weights["fc.weight"] = torch.cat([eye(HIDDEN), zeros(HIDDEN, HIDDEN)], dim=1)
    weights["fc.bias"] = zeros(HIDDEN)
    weights["embed_tokens.weight"] = target["model.embed_tokens.weight"]
    return weights


def eagle3_weights(target: Weights, *, good: bool) -> Weights:
    """One layer on [embedding, fc(three hidden states)].

    The good one's attention looks mostly at the token itself and passes its embedding on. Both have the reduced draft
    vocabulary (d2t, t2d) of real EAGLE-3 heads.
    """
    weights = layer("midlayer", attention_input=2 * HIDDEN)
    weights["midlayer.hidden_norm.weight"] = ones(HIDDEN)
    weights["fc.weight"] = rand(HIDDEN, 3 * HIDDEN)
    if good:
        pick = torch.cat([eye(HIDDEN), zeros(HIDDEN, HIDDEN)], dim=1)
        weights["midlayer.self_attn.q_proj.weight"] = pick * 2
        weights["midlayer.self_attn.k_proj.weight"] = pick * 2
        weights["midlayer.self_attn.v_proj.weight"] = pick
        weights["midlayer.self_attn.o_proj.weight"] = eye(HIDDEN) * 4
        weights["midlayer.mlp.down_proj.weight"] = zeros(HIDDEN, MLP)
        weights["fc.weight"] = zeros(HIDDEN, 3 * HIDDEN)
    weights["norm.weight"] = ones(HIDDEN)
    weights["lm_head.weight"] = target["lm_head.weight"][:DRAFT_VOCABULARY].clone()
    weights["d2t"] = torch.zeros(DRAFT_VOCABULARY, dtype=torch.int64)
    known = torch.zeros(VOCABULARY, dtype=torch.bool)
    known[:DRAFT_VOCABULARY] = True
    weights["t2d"] = known
    return weights


def write(directory: Path, tokenizer: Tokenizer, model_config: dict[str, object], weights: Weights) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(model_config, indent=1))
    save_file(
        {name: value.contiguous() for name, value in weights.items()},
        str(directory / "model.safetensors"),
        metadata={"format": "pt"},
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<|bos|>",
                "eos_token": "<|eos|>",
                "pad_token": "<|pad|>",
                "model_max_length": 2048,
                "chat_template": CHAT_TEMPLATE,
                "clean_up_tokenization_spaces": False,
            },
            indent=1,
        )
    )


def main() -> None:
    root = Path(sys.argv[1])
    torch.manual_seed(0)
    tokenizer = train_tokenizer()
    target = target_weights()
    eagle3 = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFT_VOCABULARY}
    write(root / "tiny-llama", tokenizer, config(num_hidden_layers=TARGET_LAYERS), target)
    write(root / "tiny-standalone-draft", tokenizer, config(), standalone_weights(target))
    write(root / "tiny-eagle-draft", tokenizer, config(architectures=["LlamaForCausalLMEagle"]), eagle_weights(target))
    write(
        root / "tiny-eagle3-draft",
        tokenizer,
        config(**eagle3, num_key_value_heads=HEADS),
        eagle3_weights(target, good=True),
    )
    write(root / "tiny-eagle3-draft-random", tokenizer, config(**eagle3), eagle3_weights(target, good=False))


if __name__ == "__main__":
    main()
