"""A recogniser of spoken digits whose acoustic models are distkern's kernel discriminants."""
