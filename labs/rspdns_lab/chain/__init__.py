"""The whole chain in one lab, and the same servers behind several ways to serve DNS side by side."""
