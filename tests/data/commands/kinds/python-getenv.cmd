import os, subprocess
HOST = os.getenv("HOST", "0.0.0.0")
PORT = int(os.getenv("PORT", "30000"))
model = os.environ["MODEL"]
cmd = ["python3", "-m", "sglang.launch_server", "--host", HOST, "--port", str(PORT), "--model-path", model]
if os.environ.get("TRUST"):
    cmd.append("--trust-remote-code")
subprocess.Popen(cmd)
