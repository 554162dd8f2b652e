"""Values that the other packages exchange: frozen, without behaviour beyond derived properties."""
