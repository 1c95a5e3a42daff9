task "sgl" {
  config {
    image   = "lmsysorg/sglang:latest"
    command = "python3"
    args    = ["-m", "sglang.launch_server", "--model-path", "/m", "--tp", "8"]
  }
}