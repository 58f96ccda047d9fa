"""How rspregistrar is run: its options, its supervision, and the sentinel that tells a settled registrar."""
