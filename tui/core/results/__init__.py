"""Results: the store, flat records, exports, what other tools printed or wrote."""
