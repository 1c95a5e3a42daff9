| role | command |
|---|---|
| prefill | `python3 -m sglang.launch_server --model-path /m --tp 8` |
| decode | x |