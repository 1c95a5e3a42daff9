[
    {
        "Id": "abc",
        "Path": "python3",
        "Args": ["-m", "sglang.launch_server", "--model-path", "/m", "--tp", "8"],
        "Config": {
            "Env": ["PATH=/bin", "A=1"],
            "Cmd": ["python3", "-m", "sglang.launch_server", "--model-path", "/m", "--tp", "8"],
            "Entrypoint": null
        }
    }
]