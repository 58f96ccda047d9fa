"""Labs: the whole chain in network namespaces, and what DNS says while parts of it fail."""
