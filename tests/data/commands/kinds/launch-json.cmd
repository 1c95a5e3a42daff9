{
  "version": "0.2.0",
  "configurations": [
    {"name": "sgl", "type": "debugpy", "module": "sglang.launch_server", "args": ["--model-path", "/m", "--tp", "2"], "env": {"A": "1"}}
  ]
}