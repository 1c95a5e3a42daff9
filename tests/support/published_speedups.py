"""Measured speed-ups of speculation: figures of public tables, and of the simulated host, which has those of the motivating one.

Whole-run rates, prefill included, of MT-bench and the like; tau counts the bonus token.
"""

from dataclasses import dataclass

from tui.demo import model

# sgl-project/SpecForge#339: Qwen3-30B-A3B, 2 x H100, tp 2, SGLang. Total tok/s by batch, then
# (batch, steps, draft tokens, total tok/s, tau).
SPECFORGE_BASE = {1: 222.47, 4: 566.21, 8: 733.61, 16: 1012.96, 32: 1077.55, 64: 1073.69}
SPECFORGE = [
    (1, 3, 4, 159.78, 1.86),
    (1, 3, 8, 172.99, 2.20),
    (1, 3, 4, 207.62, 1.99),
    (1, 7, 16, 191.90, 2.52),
    (1, 6, 12, 171.54, 2.42),
    (1, 8, 60, 177.5, 3.2),
    (4, 3, 4, 447.90, 1.86),
    (4, 3, 8, 426.46, 2.27),
]

# Tencent/AngelSlim#163: Qwen3-30B-A3B, 4 x H100, tp 4, SGLang.
ANGELSLIM_BASE = {1: 218.89, 4: 507.49, 8: 677.14, 32: 1128.30, 64: 1237.84}
ANGELSLIM = [
    (1, 3, 4, 170.35, 2.017),
    (1, 3, 8, 185.28, 2.216),
    (1, 4, 16, 185.64, 2.542),
    (1, 7, 64, 193.31, 3.034),
    (4, 4, 16, 476.37, 2.556),
    (8, 4, 16, 673.14, 2.578),
    (32, 4, 16, 927.11, 2.560),
    (64, 4, 16, 1307.95, 2.553),
]

# Without a sweep: (steps, draft tokens, tok/s of the baseline, with speculation, tau), one user.
# sgl-project/sglang#4247, EAGLE-3: Llama-3.1-8B, 1 x H100; the baseline and the 64 tokens are SGLang's documentation's.
SGLANG_4247 = [(5, 64, 158.34, 361.70, 4.68), (8, 64, 158.34, 378.57, 5.39)]
# vllm-project/vllm#16035, EAGLE-1: Llama-3-8B, 1 x H100.
VLLM_16035 = [(2, 3, 128.64, 175.49, 1.89), (4, 5, 128.64, 165.65, 2.08)]

# AngelSlim's documentation: Qwen3, 1 x H20, vLLM 0.11.2 with two draft tokens. By task (GSM8K, Alpaca, HumanEval, MT-bench):
# (baseline, with speculation, tau).
BY_TASK = {
    "1.7B": [(376.42, 616.9, 2.13), (378.86, 653.29, 2.19), (378.38, 680.1, 2.20), (390.53, 621.44, 2.17)],
    "4B": [(229.05, 389.35, 2.07), (235.29, 395.97, 2.10), (234.66, 377.84, 2.08), (234.04, 384.6, 2.07)],
    "8B": [(149.63, 257.32, 2.00), (149.93, 266.69, 2.02), (153.85, 244.89, 1.97), (153.81, 258.2, 1.97)],
    "14B": [(92.97, 153.72, 1.87), (92.66, 140.46, 1.78), (92.94, 144.68, 1.76), (94.46, 142.45, 1.74)],
    "32B": [(43.39, 80.43, 2.01), (43.38, 72.49, 1.90), (43.19, 71.57, 1.86), (43.30, 74.1, 1.86)],
    "30B-A3B": [(311.84, 453.97, 2.10), (320.43, 432.45, 2.04), (325.77, 428.81, 2.02), (325.42, 437.06, 2.01)],
}


@dataclass(frozen=True)
class Row:
    """One measured speed-up, with the baseline's sweep (ms a step by users)."""

    source: str
    steps_ms: dict[int, float]
    users: int
    steps: int
    draft_tokens: int
    tau: float
    speedup: float


def _swept(source, base, rows):
    steps_ms = {users: 1000 * users / rate for users, rate in base.items()}
    return [
        Row(source, steps_ms, users, steps, tokens, tau, rate / base[users]) for users, steps, tokens, rate, tau in rows
    ]


def _alone(source, rows):
    """A flat sweep, as nobody published one: what decoding by memory bandwidth has, and the least that any has."""
    return [
        Row(source, {1: 1000 / base, tokens: 1000 / base}, 1, steps, tokens, tau, rate / base)
        for steps, tokens, base, rate, tau in rows
    ]


def _simulated():
    """The motivating host: 30 ms of verify where a decode step takes 11.17."""
    base_ms = model.STEP_BASE_MS + 128 * model.STEP_PER_GRAPH_BS_MS
    grown = {users: 1 + model.STEP_PER_USER * (users - 1) for users in (1, 4, 16, 64)}
    steps_ms = {users: base_ms * factor for users, factor in grown.items()}
    for users in (1, 4, 16):
        cycle_ms = model.VERIFY_MS * grown[users] + 3 * model.DRAFT_STEP_MS
        yield Row("simulated host", steps_ms, users, 3, 4, 2.31, 2.31 * steps_ms[users] / cycle_ms)


SWEPT = {
    "SpecForge#339": _swept("SpecForge#339", SPECFORGE_BASE, SPECFORGE),
    "AngelSlim#163": _swept("AngelSlim#163", ANGELSLIM_BASE, ANGELSLIM),
}
ROWS = [
    *SWEPT["SpecForge#339"],
    *SWEPT["AngelSlim#163"],
    *_alone("sglang#4247", SGLANG_4247),
    *_alone("vllm#16035", VLLM_16035),
    *(row for size, tasks in BY_TASK.items() for row in _alone(f"AngelSlim {size}", [(2, 3, *task) for task in tasks])),
    *_simulated(),
]
