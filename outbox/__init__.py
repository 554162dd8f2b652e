"""Events with a contract. Not built yet; the package holds its place in the layout."""
