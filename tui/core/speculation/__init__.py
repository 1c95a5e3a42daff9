"""Whether speculative decoding pays: from results, as arithmetic, as a prediction. Must not know a host."""
