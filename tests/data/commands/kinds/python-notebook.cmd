from sglang.utils import launch_server_cmd
server_process, port = launch_server_cmd(
    """
python3 -m sglang.launch_server --model-path qwen/qwen2.5 \
 --host 0.0.0.0 --log-level warning
"""
)