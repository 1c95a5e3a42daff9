{
	// comment
	"configurations": [
		{"name": "s", "module": "sglang.launch_server", "args": ["--model-path", "/m", "--tp", "2"]},
	]
}
