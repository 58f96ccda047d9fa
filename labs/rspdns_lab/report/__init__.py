"""Where a lab's results go: files that a run resumes from, one self-contained HTML page."""
