services:
	sgl:
		image: lmsysorg/sglang:latest
		command: python3 -m sglang.launch_server --model-path /m --tp 8
		environment:
			- A=1
