import subprocess, sys
model = "/models/x"
def start(port=30000, tp=4, quant=None, extra=None):
    cmd = [
        sys.executable, "-m", "sglang.launch_server",
        "--model-path", model,
        "--port", str(port),
        "--tp", f"{tp}",
        *(extra or []),
    ]
    if quant:
        cmd += ["--quantization", quant]
    cmd.append("--trust-remote-code")
    env = os.environ.copy()
    env["NCCL_DEBUG"] = "INFO"
    return subprocess.Popen(cmd, env=env)
