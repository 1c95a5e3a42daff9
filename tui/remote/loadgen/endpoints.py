"""The endpoints of SGLang and vLLM: what each is for; where it has two paths, an older version has the second."""

GENERATE = "/generate"
CHAT = "/v1/chat/completions"
MODELS = ("/v1/models",)
SERVER_INFO = ("/server_info", "/get_server_info")
MODEL_INFO = ("/model_info", "/get_model_info")
VLLM_VERSION = ("/version",)
METRICS = "/metrics"
FLUSH = ("/flush_cache", "/reset_prefix_cache")  # SGLang's, vLLM's
