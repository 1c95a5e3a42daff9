raise ImportError("this Python has no NVML")
