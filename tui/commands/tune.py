"""`eagletui tune`: the range that starts, the speculation that pays, and a verdict; progress on stderr, the report on stdout."""
