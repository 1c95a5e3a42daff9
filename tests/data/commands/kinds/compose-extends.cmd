services:
  base:
    image: lmsysorg/sglang:latest
    entrypoint: ["python3", "-m", "sglang.launch_server"]
    environment:
      A: "1"
  big:
    extends:
      service: base
    environment:
      - B=2
    command: ["--model-path", "/m", "--tp", "8"]
