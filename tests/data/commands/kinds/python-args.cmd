import argparse, subprocess
args = argparse.ArgumentParser().parse_args()
subprocess.run(["python3", "-m", "sglang.launch_server", "--model-path", args.model, "--tp", "8"])
