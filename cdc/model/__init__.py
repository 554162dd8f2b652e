"""Values the steps hand to each other: frozen, no behaviour beyond reading themselves."""
