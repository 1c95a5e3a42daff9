"""Other tools' benchmarks: a form each (`form.py`), a table of them (`forms.py`), and how a record becomes a `Result`."""
