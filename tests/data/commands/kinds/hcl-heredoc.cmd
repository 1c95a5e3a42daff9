resource "x" "y" {
  user_data = <<-EOT
    #!/bin/bash
    export A=1
    python3 -m sglang.launch_server --model-path ${var.model} --tp 8
  EOT
}
