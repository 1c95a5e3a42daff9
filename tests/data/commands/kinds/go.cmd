func f(m string) []string {
	return []string{
		"python3", "-m", "sglang.launch_server",
		"--model-path", "/models/" + m,
		"--tp", "8",
	}
}