"""Posted launch commands as profiles. Knows shell text and manifests; must not execute any of it."""
