"""The files of a lab's results: a run resumes from them, and one self-contained HTML page shows them."""
