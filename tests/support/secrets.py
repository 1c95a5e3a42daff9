"""Secrets of every kind that tests plant, and texts that only look like them."""

SECRETS = (
    "hf_AAAAbbbbCCCCdddd1111",
    "p@ss/w:rd\"x'y &9<é",
    "correct horse battery",
    "a/b+c==/d+e/f0",
    "Ab3$x!",
    "back\\slash\\1",
    "sk-proj-" + "0a1B2c3D4e" * 12,
)
PLAIN = (
    "[2026-10-06 20:01:03 TP0] Decode batch. #running-req: 1, #token: 1234, token usage: 0.01, gen throughput (token/s): 89.50",
    "server_args=ServerArgs(model_path='/data/models/Kimi-K2.5', tokenizer_path='/m', max_total_tokens=None, tp_size=8)",
    "KeyError: 'model.layers.0.self_attn.q_proj.weight'",
    "the correct way to keep a horse; battery low",
    "http://127.0.0.1:30000/v1 …",
)
