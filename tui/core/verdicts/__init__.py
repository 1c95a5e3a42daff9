"""What results say when two are compared: statistics, pairs of launches, sentences. Must not know an experiment or a host."""
