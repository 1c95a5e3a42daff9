"""Results to take along. Nothing secret leaves, and no cell is taken for a formula, a column or markup by what reads it.

Knows what is stored and what verdicts say of it; must not know who asks.
"""
