"""The simulated host and the simulated SGLang on it. Knows how a host is reached; must not know a face, and nothing of
the core may know it: `client.register` hands the way in."""
