# Traffic request rate: inf
# Burstiness factor: 1.0 (Poisson process)
# Maximum request concurrency: 32
# ============ Serving Benchmark Result ============
# Successful requests:                     32
# Benchmark duration (s):                  150.87
# Total input tokens:                      65536
# Total generated tokens:                  65536
# Request throughput (req/s):              0.21
# Output token throughput (tok/s):         434.40
# Total Token throughput (tok/s):          868.80
# ---------------Time to First Token----------------
# Mean TTFT (ms):                          7279.56
# ==================================================
